// A chart with ECharts in the colours of the page. `table` is {names, rows}: each row begins with x, and has a value
// for each name behind it. New rows of a time chart are added with add(), without sending the others again.
import { echarts } from "nicegui-echart";

const colour = (name) => getComputedStyle(document.body).getPropertyValue(name).trim();

function shown(value, unit) {
  if (value === null || value === undefined) return "–";
  if (unit === "bytes") {
    for (const [size, name] of [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) if (value >= size) return (value / size).toFixed(1) + " " + name;
    return value + " B";
  }
  if (unit === "ms" && value >= 1000) return (value / 1000).toFixed(1) + " s";
  if (unit === "s" && value >= 120) return value >= 7200 ? (value / 3600).toFixed(1) + " h" : (value / 60).toFixed(1) + " min";
  let text;
  const size = Math.abs(value);
  if (size >= 1e9) text = (value / 1e9).toFixed(1) + "G";
  else if (size >= 1e6) text = (value / 1e6).toFixed(1) + "M";
  else if (size >= 1e4) text = (value / 1e3).toFixed(1) + "k";
  else text = Number.isInteger(value) ? String(value) : value.toFixed(size < 1 ? 2 : 1);
  return text + (unit ? (unit.startsWith("/") ? "" : " ") + unit : "");
}

export default {
  template: `<div class="hw-plot" :data-points="count" :data-names="names.join(',')"></div>`,
  props: { kind: String, time: Boolean, unit: String, table: Object, keep: { type: Number, default: 300 }, stacked: Boolean,
           legend: { type: Boolean, default: true }, colours: { type: Array, default: () => [] } },
  data() { return { count: 0, names: [] }; },
  mounted() {
    this.rows = [];
    this.chart = echarts.init(this.$el, null, { renderer: "canvas" });
    this.sizes = new ResizeObserver(() => this.chart.resize());
    this.sizes.observe(this.$el);
    this.themes = new MutationObserver(() => this.draw(true));
    this.themes.observe(document.body, { attributes: true, attributeFilter: ["class"] });
    this.take();
  },
  unmounted() {
    this.sizes.disconnect();
    this.themes.disconnect();
    this.chart.dispose();
  },
  watch: { table() { this.take(); } },
  methods: {
    take() {
      const before = this.names.join("\n");
      this.rows = this.table.rows.slice();
      this.names = this.table.names;
      this.draw(before !== this.names.join("\n"));
    },
    add(rows) {
      const last = this.rows.length ? this.rows[this.rows.length - 1][0] : -1;
      this.rows.push(...rows.filter((row) => row[0] > last));
      const first = this.rows.length ? this.rows[this.rows.length - 1][0] - this.keep * 1000 : 0;
      while (this.rows.length && this.rows[0][0] < first) this.rows.shift();
      this.draw(false);
    },
    draw(anew) {
      if (!this.chart) return;
      this.count = this.rows.length;
      this.chart.setOption(this.kind === "pie" ? this.pie() : this.axes(), { notMerge: anew, lazyUpdate: true });
    },
    whole() { return this.rows.every((row) => row.slice(1).every((value) => value === null || Number.isInteger(value))); },
    // A chart without a single value says so, instead of looking broken.
    nothing() {
      const none = !this.rows.some((row) => row.slice(1).some((value) => value !== null && value !== undefined));
      return [{ id: "nothing", type: "text", left: "center", top: "middle", silent: true,
                style: { text: none ? "Nothing to show yet" : "", fill: colour("--hw-muted"), fontSize: 13 } }];
    },
    palette() {
      const named = this.colours.map((name) => colour("--hw-" + name));
      return [...named, ...Array.from({ length: 10 }, (_, at) => colour("--hw-c" + at))];
    },
    common() {
      return {
        animation: false,
        color: this.palette(),
        textStyle: { fontFamily: "Roboto, system-ui, sans-serif" },
        tooltip: {
          trigger: this.kind === "pie" ? "item" : "axis",
          confine: true,
          transitionDuration: 0,
          backgroundColor: colour("--hw-raised"),
          borderColor: colour("--hw-border"),
          textStyle: { color: colour("--hw-text"), fontSize: 12 },
          valueFormatter: (value) => shown(value, this.unit),
          axisPointer: { lineStyle: { color: colour("--hw-border") } },
        },
        legend: {
          show: this.legend && this.names.length > 1 && this.kind !== "pie",
          type: "scroll", top: 0, right: 0, itemWidth: 10, itemHeight: 10, icon: "roundRect",
          textStyle: { color: colour("--hw-muted"), fontSize: 12 },
          pageIconColor: colour("--hw-muted"), pageTextStyle: { color: colour("--hw-muted") },
        },
      };
    },
    axes() {
      const grey = colour("--hw-muted"), rule = colour("--hw-rule");
      const isBar = this.kind === "bar";
      // Names of bars are read more easily beside them than slanted below.
      const sideways = isBar && !this.time;
      const rows = sideways ? this.rows.slice().reverse() : this.rows;
      const values = {
        type: "value", min: this.kind === "area" || this.stacked || isBar ? 0 : undefined, splitNumber: 4, minInterval: this.whole() ? 1 : 0,
        axisLabel: { color: grey, fontSize: 11, formatter: (value) => shown(value, this.unit) },
        splitLine: { lineStyle: { color: rule } },
      };
      const along = {
        type: this.time ? "time" : "category",
        data: this.time ? undefined : rows.map((row) => row[0]),
        axisLabel: { color: grey, fontSize: 11, hideOverlap: true,
                     width: sideways ? 130 : undefined, overflow: sideways ? "truncate" : undefined },
        axisLine: { lineStyle: { color: rule } }, axisTick: { show: false }, splitLine: { show: false },
      };
      return {
        ...this.common(),
        graphic: this.nothing(),
        useUTC: true,
        grid: { left: 4, right: 24, top: this.legend && this.names.length > 1 ? 30 : 12, bottom: 2, containLabel: true },
        xAxis: sideways ? values : along,
        yAxis: sideways ? along : values,
        series: this.names.map((name, at) => ({
          name,
          type: isBar ? "bar" : "line",
          stack: this.stacked ? "all" : undefined,
          areaStyle: this.kind === "area" || (this.stacked && !isBar) ? { opacity: this.stacked ? 0.55 : 0.14 } : undefined,
          lineStyle: { width: this.stacked ? 1 : 1.8 },
          barMaxWidth: 22,
          itemStyle: isBar && !this.stacked ? { borderRadius: sideways ? [0, 3, 3, 0] : [3, 3, 0, 0] } : undefined,
          showSymbol: rows.length < 2,
          symbolSize: 6,
          data: this.time ? rows.map((row) => [row[0], row[at + 1]]) : rows.map((row) => row[at + 1]),
        })),
      };
    },
    pie() {
      return {
        ...this.common(),
        series: [{
          type: "pie", radius: ["48%", "74%"], center: ["50%", "52%"],
          itemStyle: { borderColor: colour("--hw-surface"), borderWidth: 2 },
          label: { color: colour("--hw-text"), fontSize: 12 },
          data: this.rows.map((row) => ({ name: String(row[0]), value: row[1] })),
        }],
      };
    },
  },
};
