// JSON with its parts coloured; the text is escaped by Vue.
const PIECE = /("(?:\\.|[^"\\])*"(?=\s*:))|("(?:\\.|[^"\\])*")|(\b(?:true|false|null)\b)|(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|([^"\d\-tfn]+|.)/gs;
export default {
  template: `<pre class="hw-code"><span v-for="(piece, at) in pieces" :key="at" :class="piece[0]">{{ piece[1] }}</span></pre>`,
  props: { text: String, coloured: Boolean },
  computed: {
    pieces() {
      if (!this.coloured) return [["", this.text]];
      const found = [];
      for (const match of this.text.matchAll(PIECE)) {
        const kind = match[1] ? "is-key" : match[2] ? "is-text" : match[3] ? "is-word" : match[4] ? "is-number" : "";
        if (found.length && found[found.length - 1][0] === kind) found[found.length - 1][1] += match[0];
        else found.push([kind, match[0]]);
      }
      return found;
    },
  },
};
