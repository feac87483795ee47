// A table whose rows and cells change in place. A cell is a text, a number, or an object with text, sub, href, tone
// (ok, warn, bad, muted), badge, bar (0 to 1), dot, mono and title. With `flash`, cells that change light up.
export default {
  template: `
    <div class="hw-sheet-frame" :style="height ? { maxHeight: height } : {}" ref="frame">
      <table class="hw-sheet" :class="{ 'is-dense': dense, 'is-picked': pickable }">
        <thead><tr>
          <th v-for="column in shown" :key="column.name" :class="'at-' + (column.align || 'left')"
              :style="column.width ? { width: column.width } : {}" :title="column.title"
              :aria-sort="column.sort || undefined">
            <button v-if="column.sortable" type="button" @click="$emit('sort', column.name)">{{ column.label
              }}<span class="hw-sort">{{ column.sort === 'descending' ? '↓' : column.sort ? '↑' : '' }}</span></button>
            <template v-else>{{ column.label }}</template>
          </th>
        </tr></thead>
        <tbody>
          <tr v-for="row in rows" :key="row.id" :data-row="row.id" :class="[row.tone ? 'is-' + row.tone : '',
              { 'is-chosen': row.id === chosen, 'is-new': fresh.has(row.id) }]" :tabindex="pickable ? 0 : undefined"
              :aria-selected="pickable ? row.id === chosen : undefined" @click="pick(row)" @keydown.enter.self="pick(row)"
              @keydown.down.self.prevent="step($event, 'nextElementSibling')"
              @keydown.up.self.prevent="step($event, 'previousElementSibling')">
            <td v-for="column in shown" :key="column.name" :class="['at-' + (column.align || 'left'),
                { 'is-mono': column.mono, 'is-wide': column.wide }]" :data-column="column.name">
              <hw-cell :cell="row.cells[column.name]" :key="column.name + (stamps[row.id + ' ' + column.name] || 0)"
                       :class="{ 'hw-flash': stamps[row.id + ' ' + column.name] }"/>
            </td>
          </tr>
        </tbody>
      </table>
      <div v-if="!rows.length" class="hw-empty"><div>{{ empty }}</div><code v-if="hint">{{ hint }}</code></div>
    </div>`,
  components: {
    "hw-cell": {
      props: { cell: null },
      template: `
        <span class="hw-cell" v-if="cell === null || typeof cell !== 'object'" :title="long">{{ cell }}</span>
        <span class="hw-cell" v-else :class="cell.tone ? 'is-' + cell.tone : ''" :title="cell.title || cell.text">
          <span v-if="cell.dot" :class="'hw-dot is-' + cell.dot"></span>
          <span v-if="cell.badge" class="hw-badge" :class="'is-' + (cell.tone || 'muted')">{{ cell.text }}</span>
          <a v-else-if="cell.href" :href="cell.href" @click.stop>{{ cell.text }}</a>
          <span v-else :class="{ 'is-mono': cell.mono }">{{ cell.text }}</span>
          <span v-if="cell.bar !== undefined" class="hw-bar"><i :style="{ width: 100 * cell.bar + '%' }"></i></span>
          <span v-if="cell.sub" class="hw-sub">{{ cell.sub }}</span>
        </span>`,
      computed: { long() { return typeof this.cell === "string" && this.cell.length > 24 ? this.cell : undefined; } },
    },
  },
  props: { columns: Array, rows: Array, empty: String, hint: String, height: String, dense: Boolean, flash: Boolean,
           pickable: Boolean, chosen: String },
  emits: ["pick", "sort"],
  data() { return { stamps: {}, fresh: new Set() }; },
  watch: {
    rows(now, before) {
      if (!this.flash) return;
      const known = new Map((before || []).map((row) => [row.id, row]));
      const stamps = {}, fresh = new Set();
      for (const row of now) {
        const old = known.get(row.id);
        if (!old && known.size) fresh.add(row.id);
        for (const name of old ? Object.keys(row.cells) : []) {
          const id = row.id + " " + name;
          const same = JSON.stringify(old.cells[name]) === JSON.stringify(row.cells[name]);
          if (!same) stamps[id] = (this.stamps[id] || 0) + 1;
          else if (this.stamps[id]) stamps[id] = this.stamps[id];
        }
      }
      this.stamps = stamps;
      this.fresh = fresh;
    },
  },
  computed: {
    // A column without a name is there when it has something to say.
    shown() {
      return this.columns.filter((column) => column.label || this.rows.some((row) => row.cells[column.name]));
    },
  },
  methods: {
    pick(row) { if (this.pickable) this.$emit("pick", row.id); else if (row.href) this.$refs.frame && this.open(row); },
    step(event, where) { if (this.pickable && event.target[where]) event.target[where].focus(); },
    open(row) {
      const link = document.createElement("a");
      link.href = row.href;
      this.$refs.frame.append(link);
      link.click();
      link.remove();
    },
  },
};
