// The application's graph: boxes and lines at the places that the server gives, figures that change under them.
export default {
  template: `
    <div class="hw-flow" :style="{ maxHeight: maxHeight + 'px' }">
      <svg :viewBox="'0 0 ' + width + ' ' + height" :width="width" :height="height"
           :style="{ minWidth: Math.min(width, width * 0.72) + 'px' }" role="group" :aria-label="label">
        <defs>
          <marker id="hw-arrow" markerWidth="8" markerHeight="8" refX="6.5" refY="4" orient="auto">
            <path d="M1,1 L7,4 L1,7" fill="none" stroke="context-stroke" stroke-width="1.4"/>
          </marker>
        </defs>
        <g v-for="line in lines" :key="line.id" :class="['hw-line', 'is-' + line.tone, line.moves ? 'is-moving' : '']">
          <path class="hw-line-base" :d="line.path" marker-end="url(#hw-arrow)"/>
          <path v-if="line.moves" class="hw-line-flow" :d="line.path"/>
        </g>
        <a v-for="line in labelled" :key="'label ' + line.id" :href="line.href" class="hw-line-label"
           :class="'is-' + line.tone" :data-line="line.id">
          <title>{{ line.title }}</title>
          <rect :x="line.x - line.wide / 2" :y="line.y - line.texts.length * 7 - 3" :width="line.wide"
                :height="line.texts.length * 14 + 6" rx="5"/>
          <text v-for="(text, row) in line.texts" :key="row" :x="line.x"
                :y="line.y + (row - line.texts.length / 2) * 14 + 11" text-anchor="middle"
                :class="row === 0 ? 'is-first' : ''">{{ text }}</text>
        </a>
        <a v-for="box in boxes" :key="box.id" :href="box.href" :class="['hw-box', 'is-' + box.tone, 'kind-' + box.kind]"
           :data-box="box.id">
          <title>{{ box.title }}</title>
          <rect class="hw-box-face" :x="box.x" :y="box.y" :width="boxWidth" :height="boxHeight" rx="8"/>
          <path class="hw-box-edge" :d="'M' + (box.x + 4) + ',' + (box.y + 1) + ' h-0.5 a3.5,8 0 0 0 -3.5,8 v'
            + (boxHeight - 18) + ' a3.5,8 0 0 0 3.5,8 h0.5 z'"/>
          <circle v-if="box.dot" :cx="box.x + boxWidth - 14" :cy="box.y + 15" r="4" :class="'hw-dot is-' + box.dot"/>
          <text class="hw-box-kind" :x="box.x + 15" :y="box.y + 15">{{ box.kind }}</text>
          <text class="hw-box-name" :x="box.x + 15" :y="box.y + 31">{{ box.name }}</text>
          <text class="hw-box-note" :x="box.x + 15" :y="box.y + 47">{{ box.note }}</text>
        </a>
      </svg>
    </div>`,
  props: { width: Number, height: Number, boxWidth: Number, boxHeight: Number, maxHeight: Number,
           boxes: Array, lines: Array, label: String },
  computed: {
    labelled() {
      return this.lines.filter((line) => line.texts.length).map((line) => ({
        ...line, wide: 14 + 5.7 * Math.max(...line.texts.map((text) => text.length)),
      }));
    },
  },
};
