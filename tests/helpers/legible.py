"""What makes a page hard to read, as expressions of JavaScript for :class:`helpers.browser.Browser`."""

# Texts of the page that are smaller than 12 pixels, or stand out from what is behind them by less than WCAG's 4.5.
TEXTS = """
const kinds = 'h1, h2, h3, p, td, th, a, dt, dd, span, pre, caption, figcaption, label, .plot text';
const texts = [...document.querySelectorAll(kinds)]
  .filter(item => item.textContent.trim() && item.getClientRects().length && item.checkVisibility());
"""
TOO_SMALL = f"(() => {{ {TEXTS} return texts.filter(item => parseFloat(getComputedStyle(item).fontSize) < 12)"
TOO_SMALL += ".map(item => item.textContent.slice(0, 40)); })()"
FAINT = f"""(() => {{ {TEXTS}
const parts = (colour) => colour.match(/[0-9.]+/g).map(Number);
const linear = (part) => (part /= 255) <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
const behind = (item) => {{
  for (; item; item = item.parentElement) {{
    const colour = parts(getComputedStyle(item).backgroundColor);
    if (colour.length === 3 || colour[3] > 0) return colour;
  }}
  return [255, 255, 255];
}};
return texts.filter(item => {{
  const style = getComputedStyle(item);
  const ink = light(parts(item.tagName === 'text' ? style.fill : style.color)), page = light(behind(item));
  return (Math.max(ink, page) + 0.05) / (Math.min(ink, page) + 0.05) < 4.5;
}}).map(item => item.tagName + ': ' + item.textContent.slice(0, 40));
}})()"""
