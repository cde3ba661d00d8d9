"use strict";

// Runs after textual.js, which connects on load to the address in the element's data.
(() => {
  const connect = window.onload;
  window.onload = null;

  window.addEventListener("load", async (event) => {
    const terminal = document.getElementById("terminal");
    const again = document.getElementById("again");
    again.addEventListener("click", () => window.location.reload());

    // Seen from the browser: behind a forwarded port the server's own address is another one.
    const scheme = window.location.protocol === "https:" ? "wss:" : "ws:";
    terminal.dataset.sessionWebsocketUrl = `${scheme}//${window.location.host}/ws`;

    // Cells are measured once, when the terminal opens: with the font that will be drawn.
    const fonts = ["16px", "bold 16px", "italic 16px"];
    await Promise.allSettled(fonts.map((font) => document.fonts.load(`${font} "Roboto Mono"`)));
    connect.call(window, event);

    const focus = () => {
      const closed = document.body.classList.contains("-closed");
      (closed ? again : terminal.querySelector("textarea"))?.focus();
    };
    focus();
    window.addEventListener("focus", focus);
    new MutationObserver(focus).observe(document.body, { attributeFilter: ["class"] });
  });
})();
