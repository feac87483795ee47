// A row of headline figures, each with a line of its last minutes.
export default {
  template: `
    <div class="hw-tiles">
      <div v-for="tile in tiles" :key="tile.name" class="hw-tile" :class="'is-' + (tile.tone || 'plain')" :data-tile="tile.name"
           :title="tile.title">
        <div class="hw-tile-label">{{ tile.label }}</div>
        <div class="hw-tile-value">{{ tile.value }}<small v-if="tile.unit">{{ tile.unit }}</small></div>
        <div class="hw-tile-sub">{{ tile.sub }}</div>
        <svg v-if="tile.points && tile.points.length > 1 && tile.points.some((value) => value)" viewBox="0 0 100 28" preserveAspectRatio="none" aria-hidden="true">
          <path class="is-area" :d="area(tile.points)"/><path class="is-line" :d="line(tile.points)"/>
        </svg>
      </div>
    </div>`,
  props: { tiles: Array },
  methods: {
    places(points) {
      const most = Math.max(...points.map((value) => value || 0), 1e-9);
      return points.map((value, at) => [(100 * at) / (points.length - 1), 27 - (24 * (value || 0)) / most]);
    },
    line(points) {
      return "M" + this.places(points).map(([x, y]) => x.toFixed(1) + "," + y.toFixed(1)).join(" L");
    },
    area(points) { return this.line(points) + " L100,28 L0,28 z"; },
  },
};
