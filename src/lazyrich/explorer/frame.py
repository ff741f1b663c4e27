"""The document around a page's widgets: heading, navigation, styles; nothing in it comes from another machine."""

from __future__ import annotations

NAVIGATION = (
    ("linear", "Deep linear networks"),
    ("two-layer", "Two layers: lazy and active"),
    ("depth", "Rules for depth"),
)

FRAME = """
{% extends base %}
{% block preamble %}
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<style>
  :root { --bokeh-font-size: 14px; }
  html, body { background: #ffffff; color: #1a1a1a; font: 16px/1.4 system-ui, "DejaVu Sans", Arial, sans-serif; }
  header { display: flex; flex-wrap: wrap; gap: 4px 24px; align-items: baseline; padding: 10px 20px;
           border-bottom: 2px solid #0072B2; }
  header strong { font-size: 1.15em; }
  nav { display: flex; flex-wrap: wrap; gap: 2px 18px; }
  nav a { color: #005a8f; padding: 2px 0; }
  nav a[aria-current] { color: #1a1a1a; font-weight: 600; text-decoration: none; border-bottom: 3px solid #D55E00; }
  h1 { font-size: 1.35em; margin: 14px 20px 2px; }
  .lead { margin: 0 20px 10px; max-width: 75em; color: #333; }
  main { display: grid; gap: 8px 24px; padding: 0 20px 24px; grid-template-columns: minmax(300px, 350px) minmax(0, 1fr);
         grid-template-areas: "controls figure" "controls actions"; grid-template-rows: auto 1fr; max-width: 1500px; }
  #controls { grid-area: controls; } #figure { grid-area: figure; } #actions { grid-area: actions; }
  #figure { background: #ffffff; }
  .skip { position: absolute; left: -999px; } .skip:focus { left: 8px; top: 8px; background: #fff; padding: 6px; }
  a:focus-visible { outline: 3px solid #E69F00; outline-offset: 2px; }
  @media (max-width: 820px) {
    header, .lead, h1 { margin-left: 0; padding-left: 12px; padding-right: 12px; }
    header { padding: 6px 12px; } h1 { font-size: 1.15em; margin-top: 8px; }
    .lead { font-size: 0.9em; margin-right: 0; }
    main { grid-template-columns: minmax(0, 1fr); grid-template-areas: "figure" "controls" "actions";
           padding: 0 12px 16px; grid-template-rows: none; }
  }
  @media (max-width: 820px) and (min-height: 700px) {
    #figure { position: sticky; top: 0; max-height: 62vh; overflow-y: auto; z-index: 10;
              border-bottom: 1px solid #999; }
  }
</style>
{% endblock %}
{% block contents %}
<a class="skip" href="#controls">Skip to the settings</a>
<header><strong>lazyrich explore</strong>
  <nav aria-label="Pages">
  {% for address, text, current in pages %}
    <a href="/{{ address }}"{% if current %} aria-current="page"{% endif %}>{{ text }}</a>
  {% endfor %}
  </nav>
</header>
<h1>{{ page_title }}</h1>
<p class="lead">{{ lead }}</p>
<main>
  <section id="controls" aria-label="Settings">{{ embed(roots.controls) }}</section>
  <section id="figure" aria-label="Figure">{{ embed(roots.figure) }}</section>
  <section id="actions" aria-label="Actions">{{ embed(roots.actions) }}</section>
</main>
{% endblock %}
"""
