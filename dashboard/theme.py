"""Colours that mean one thing everywhere and are told apart by the colour-blind, in light and in dark; and the page's style."""

from __future__ import annotations

from collections.abc import Mapping

COLOURS: Mapping[str, str] = {
    "used": "#2f80ed",
    "refused": "#e4572e",
    "limit": "#7f8ba0",
    "mark": "#b98000",
    "critical": "#d7263d",
    "low": "#79a6d2",
    "high": "#bf408a",
    "free": "#0f9d8a",
    "first": "#bf408a",
    "second": "#79a6d2",
    "third": "#8a8f6a",
}
"""By meaning. `refused` is for refusals only, `mark` and `critical` for lines that must not be crossed."""

PERCENTILES: Mapping[str, str] = {"p50": "low", "p95": "used", "p99": "high"}
CLASS_ORDER: tuple[str, ...] = ("first", "second", "third")
ICONS: Mapping[str, str] = {"ok": "✓", "acting": "◆", "warn": "▲", "critical": "✕", "unknown": "?"}

STYLE = """
<style>
:root {
  --tg-ink: light-dark(#1b2430, #e6ebf2); --tg-soft: light-dark(#5b6676, #9aa7b8);
  --tg-line: light-dark(#dfe4ea, #2a3441); --tg-card: light-dark(#ffffff, #18202a);
  --tg-ok: light-dark(#0b7a6b, #2cc2ad); --tg-acting: light-dark(#1f6fd6, #5aa2ff);
  --tg-warn: light-dark(#9a6700, #f0b429); --tg-critical: light-dark(#c21f34, #ff6b78);
  --tg-unknown: light-dark(#5b6676, #9aa7b8); --tg-refused: #e4572e;
}
.stMainBlockContainer { padding: .75rem 1.25rem 2rem !important; max-width: 1720px; }
[data-testid="stHeader"] { display: none; }
[data-testid="stStatusWidget"] { display: none; }
[data-stale="true"] { opacity: 1 !important; transition: none !important; }
.stApp [data-testid="stVerticalBlock"] { gap: .5rem; }
.stApp [data-testid="stHorizontalBlock"] { gap: .5rem; }
[class*="st-key-tg-card"] { background: var(--tg-card); border: 1px solid var(--tg-line); border-radius: 6px;
  padding: .5rem .65rem .15rem; gap: .1rem !important; }
[class*="st-key-tg-card"] [data-testid="stElementToolbar"] { display: none; }
.tg { color: var(--tg-ink); font-size: 13px; line-height: 1.35; font-variant-numeric: tabular-nums; }
.tg b { font-weight: 600; }
.tg-soft { color: var(--tg-soft); }
.tg-ok { color: var(--tg-ok); } .tg-acting { color: var(--tg-acting); } .tg-warn { color: var(--tg-warn); }
.tg-critical { color: var(--tg-critical); } .tg-unknown { color: var(--tg-unknown); } .tg-refused { color: var(--tg-refused); }
.tg-top { display: flex; gap: .5rem; align-items: stretch; }
.tg-verdict { flex: 1; min-width: 0; display: flex; gap: .8rem; align-items: center; padding: .6rem .9rem; border-radius: 6px;
  background: var(--tg-card); border: 1px solid var(--tg-line); border-left: 8px solid var(--tone); min-height: 68px; }
.tg-verdict .icon { font-size: 26px; line-height: 1; color: var(--tone); width: 1.1em; text-align: center; }
.tg-verdict .say { font-size: 20px; font-weight: 650; line-height: 1.25; }
.tg-verdict .why { font-size: 14px; color: var(--tg-soft); margin-top: 2px; }
.tg-verdict.critical { background: light-dark(#fdeaec, #3a161c); }
.tg-verdict.warn { background: light-dark(#fff6e0, #33290f); }
.tone-ok { --tone: var(--tg-ok); } .tone-acting { --tone: var(--tg-acting); } .tone-warn { --tone: var(--tg-warn); }
.tone-critical { --tone: var(--tg-critical); } .tone-unknown { --tone: var(--tg-unknown); }
.tg-mode { width: 190px; border-radius: 6px; padding: .5rem .8rem; display: flex; flex-direction: column; justify-content: center;
  border: 1px solid var(--tg-line); background: var(--tg-card); }
.tg-mode .name { font-size: 20px; font-weight: 700; letter-spacing: .02em; }
.tg-mode.shadow { background: repeating-linear-gradient(135deg, light-dark(#efe7fb, #2b2140) 0 10px, light-dark(#e4d8f7, #352a4e) 10px 20px); }
.tg-mode.off { background: light-dark(#1b2430, #e6ebf2); } .tg-mode.off * { color: light-dark(#fff, #10151c) !important; }
.tg-strip { display: flex; flex-wrap: wrap; gap: .15rem 1.1rem; padding: .1rem .2rem; }
.tg-warnings { border-left: 4px solid var(--tg-warn); padding: .2rem .7rem; background: light-dark(#fff6e0, #33290f); border-radius: 4px; }
.tg-card .head { display: flex; justify-content: space-between; gap: .5rem; color: var(--tg-soft); font-weight: 600; white-space: nowrap; }
.tg-card .head span:last-child { font-weight: 400; overflow: hidden; text-overflow: ellipsis; }
.tg-card .big { font-size: 23px; font-weight: 650; line-height: 1.2; white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }
.tg-card .big small { font-size: 13px; font-weight: 400; color: var(--tg-soft); }
.tg-card .legend { display: flex; flex-wrap: wrap; gap: 0 .7rem; height: 1.35em; overflow: hidden; white-space: nowrap; font-size: 12px; }
.tg-card .note { color: var(--tg-soft); height: 1.35em; overflow: hidden; white-space: nowrap; text-overflow: ellipsis; font-size: 12px; }
.tg-swatch { display: inline-block; width: .7em; height: .7em; border-radius: 2px; margin-right: .3em; }
.tg-swatch.dash { height: 0; border-top: 2px dashed; background: none !important; width: 1em; vertical-align: .25em; border-radius: 0; }
.tg-empty { height: 118px; display: flex; align-items: center; justify-content: center; color: var(--tg-soft); text-align: center; }
.tg-panel { background: var(--tg-card); border: 1px solid var(--tg-line); border-radius: 6px; padding: .5rem .7rem; overflow-x: auto; }
.tg-panel h4 { font-size: 13px; font-weight: 600; color: var(--tg-soft); margin: 0 0 .25rem; padding: 0; }
.tg-panel table { border-collapse: collapse; width: 100%; margin: 0; font-size: 13px; }
.tg-panel th { text-align: right; font-weight: 400; color: var(--tg-soft); padding: .1rem .5rem; border: 0; border-bottom: 1px solid var(--tg-line); white-space: nowrap; font-size: 12px; }
.tg-panel td { text-align: right; padding: .18rem .5rem; border: 0; border-bottom: 1px solid var(--tg-line); vertical-align: top; }
.tg-panel tr:last-child td { border-bottom: 0; }
.tg-panel .l { text-align: left; } .tg-panel .nw { white-space: nowrap; }
.tg-panel .small { font-size: 12px; white-space: nowrap; }
.tg-bar { position: relative; height: 10px; border-radius: 3px; background: var(--tg-line); min-width: 90px; margin-top: 4px; }
.tg-bar i { position: absolute; left: 0; top: 0; bottom: 0; border-radius: 3px; }
.tg-bar u { position: absolute; top: -3px; bottom: -3px; width: 2px; }
.tg-old { opacity: .45; filter: grayscale(.8); }
@media (max-width: 640px) { .tg-top { flex-direction: column; } .tg-mode { width: auto; } }
</style>
"""
