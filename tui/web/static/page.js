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

    // textual.js tells the server of each focus: not before the connection is open.
    const focus = () => {
      const state = document.body.classList;
      if (state.contains("-closed")) again.focus();
      else if (state.contains("-loaded")) terminal.querySelector("textarea").focus();
    };
    window.addEventListener("focus", focus);
    new MutationObserver(focus).observe(document.body, { attributeFilter: ["class"] });
  });
})();
