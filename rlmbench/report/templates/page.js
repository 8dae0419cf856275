"use strict";
(() => {
  const read = (id) => JSON.parse(document.getElementById(id).textContent);

  // One tooltip for all charts. Text only: what a record holds is never taken for markup.
  const tip = document.createElement("div");
  tip.setAttribute("role", "status");
  tip.style.cssText =
    "position:fixed;z-index:3;pointer-events:none;max-width:22rem;padding:.35rem .65rem;border-radius:6px;font-size:.85rem;" +
    "line-height:1.4;background:var(--ink);color:var(--surface);visibility:hidden";
  document.body.append(tip);
  const showTip = (_handler, event, _item, value) => {
    const text = value && typeof value === "object" ? Object.values(value).join(" · ") : value;
    if (!text) {
      tip.style.visibility = "hidden";
      return;
    }
    tip.textContent = text;
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - box.width - 4)) + "px";
    tip.style.top = (event.clientY + 18 + box.height > innerHeight ? event.clientY - box.height - 10 : event.clientY + 18) + "px";
    tip.style.visibility = "visible";
  };

  // A report opens from disk: nothing a specification names may be fetched.
  const refuse = () => Promise.reject(new Error("this page loads nothing"));
  const options = {
    mode: "vega-lite", renderer: "svg", actions: false, defaultStyle: false, tooltip: showTip,
    loader: { load: refuse, sanitize: refuse, http: refuse, file: refuse },
  };

  const views = new Map();
  const draw = async (place) => {
    const id = place.dataset.spec;
    const { view } = await vegaEmbed(place, read(id), options);
    views.set(place, view);
    const chooser = document.getElementById(id + "-choice");
    if (!chooser) return;
    const choices = read(id + "-rows");
    const choose = () => view.data("spans", choices[chooser.value]).runAsync();
    chooser.addEventListener("change", choose);
    await choose();
  };

  for (const bar of document.querySelectorAll(".filters")) {
    const lines = bar.parentElement.querySelectorAll("tbody tr");
    bar.addEventListener("click", (event) => {
      const pressed = event.target.closest("button");
      if (!pressed) return;
      for (const button of bar.querySelectorAll("button")) button.setAttribute("aria-pressed", String(button === pressed));
      for (const line of lines) line.hidden = Boolean(pressed.value) && line.dataset.tag !== pressed.value;
    });
  }

  for (const button of document.querySelectorAll("button[data-source]")) {
    button.addEventListener("click", () => {
      const held = read(button.dataset.source);
      const [text, type] = typeof held === "string" ? [held, "text/csv"] : [JSON.stringify(held), "application/json"];
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([text], { type }));
      link.download = button.dataset.name;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    });
  }

  // Charts are drawn again as wide as they will be on paper: made smaller with their letters, they could not be read.
  const redraw = () => { for (const [place, view] of views) view.width(place.clientWidth).runAsync(); };
  addEventListener("beforeprint", () => {
    document.documentElement.classList.add("paper");
    redraw();
  });
  addEventListener("afterprint", () => {
    document.documentElement.classList.remove("paper");
    redraw();
  });

  const drawings = [...document.querySelectorAll(".drawing")];
  Promise.all(drawings.map(draw)).then(() => { document.documentElement.dataset.ready = "true"; });
})();
