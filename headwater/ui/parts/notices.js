// What is wrong: what, why, and what to do next.
export default {
  template: `
    <div class="hw-notices" v-show="items.length" role="status" aria-live="polite">
      <div v-for="item in shown" :key="item.what" class="hw-notice" :class="'is-' + item.tone">
        <span class="hw-notice-sign">{{ item.tone === 'bad' ? '!' : 'i' }}</span>
        <div>
          <div class="hw-notice-what">{{ item.what }}<a v-if="item.href" :href="item.href">show</a></div>
          <div class="hw-notice-why">{{ item.why }}</div>
          <div v-if="item.next" class="hw-notice-next">{{ item.next }}</div>
        </div>
      </div>
      <button v-if="items.length > most" type="button" class="hw-more" @click="all = !all">
        {{ all ? 'Show fewer' : (items.length - most) + ' more' }}</button>
    </div>`,
  props: { items: Array, most: { type: Number, default: 3 } },
  data() { return { all: false }; },
  computed: { shown() { return this.all ? this.items : this.items.slice(0, this.most); } },
};
