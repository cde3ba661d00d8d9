"use strict";

// Runs after textual.js, which connects on load, once, and does not notice a dead connection.
(() => {
  const Socket = window.WebSocket;
  const LOOK = 1000;
  const QUIET = 2000; // without a message for so long, the server is asked for one
  const PATIENCE = 4000; // for an answer; LOOK + QUIET + PATIENCE + LOOK is below 10 s
  const SLEPT = 5000; // between two looks: the machine was asleep, or the page frozen
  const FIRST_WAIT = 1000;
  const LONGEST_WAIT = 10000;
  const RESET = new Uint8Array([0x18, 0x1b, 0x63]); // CAN ends a cut sequence, RIS clears

  // What textual.js takes for its one WebSocket: connections that follow one another.
  class Connection extends EventTarget {
    #address;
    #socket = null;
    #since = 0; // when the socket was made
    #drawn = false; // by the socket
    #heard = performance.now();
    #asked = null; // when the server was asked for an answer, while there is none
    #looked = performance.now();
    #wait = FIRST_WAIT;
    #next = 0;
    #trial = null;
    #closed = false; // by the person
    #ended = false; // the server has said so
    #refusal = "";

    constructor(address) {
      super();
      const touch = window.matchMedia("(pointer: coarse)").matches;
      this.#address = touch ? `${address}&touch=1` : address;
      this.#open();
      setInterval(() => this.#look(), LOOK);
      for (const name of ["online", "pageshow"]) {
        window.addEventListener(name, () => this.wake());
      }
      document.addEventListener("visibilitychange", () => this.wake());
      document.getElementById("now").addEventListener("click", () => this.wake());
      document.getElementById("again").addEventListener("click", () => {
        this.#closed = false;
        document.body.classList.remove("-closed");
        this.wake();
      });
    }

    send(text) {
      if (this.#socket?.readyState === Socket.OPEN) this.#socket.send(text);
    }

    // What waits for a better time is done now.
    wake() {
      if (this.#closed || document.hidden) return;
      this.#hurry();
      if (this.#socket !== null && !this.#silent()) this.#ask();
      this.#look();
    }

    #hurry() {
      this.#wait = FIRST_WAIT;
      this.#next = 0;
      this.#trial?.abort();
      this.#trial = null;
    }

    #look() {
      const now = performance.now();
      const slept = now - this.#looked > SLEPT;
      this.#looked = now;
      // Timers of a hidden page are late; so is one that slept: no answer has been missed.
      if (slept || document.hidden) this.#asked = null;
      if (this.#closed || document.hidden) return;
      if (slept) this.#hurry();
      if (this.#socket !== null && this.#asked === null && (slept || now - this.#heard > QUIET)) {
        this.#ask();
      }
      if ((this.#socket === null || this.#silent()) && now >= this.#next) this.#try();
      this.#show();
    }

    #ask() {
      this.#asked = performance.now();
      this.send('["ping", ""]');
    }

    #silent() {
      return this.#asked !== null && performance.now() - this.#asked > PATIENCE;
    }

    // A WebSocket starts a process on the server, even where its browser has given it up before a
    // stopped server gets to it, and does not tell why it was refused: a plain request goes first.
    async #try() {
      if (this.#trial !== null) return;
      const trial = (this.#trial = new AbortController());
      const limit = setTimeout(() => trial.abort(), PATIENCE);
      const silent = this.#socket;
      try {
        const answer = await fetch("/", { cache: "no-store", signal: trial.signal });
        const text = await answer.text();
        this.#refusal = answer.ok ? "" : text.trim().slice(0, 300) || `HTTP ${answer.status}`;
        if (answer.ok) {
          // The connection that was silent is better than a new one, if it answers as well.
          this.send('["ping", ""]');
          if (silent !== null) await new Promise((resolve) => setTimeout(resolve, QUIET));
          const alive = this.#socket !== null && !this.#silent();
          if (trial === this.#trial && !this.#closed && !alive) this.#open();
        }
      } catch {
        if (trial === this.#trial) this.#refusal = "";
      } finally {
        clearTimeout(limit);
        if (trial === this.#trial) {
          this.#trial = null;
          this.#next = performance.now() + this.#wait;
          this.#wait = Math.min(2 * this.#wait, LONGEST_WAIT);
          this.#show();
        }
      }
    }

    #open() {
      this.#socket?.close();
      const socket = (this.#socket = new Socket(this.#address));
      socket.binaryType = "arraybuffer";
      this.#since = this.#asked = performance.now();
      this.#drawn = false;
      socket.onopen = () => {
        if (socket !== this.#socket) return;
        this.#ask();
        this.dispatchEvent(new Event("open"));
        // A new process takes its page for one without the focus.
        if (document.activeElement?.closest("#terminal")) this.send('["focus"]');
      };
      socket.onmessage = ({ data }) => {
        if (socket !== this.#socket) return;
        this.#heard = performance.now();
        this.#asked = null;
        this.#ended = false;
        this.#refusal = "";
        if (typeof data !== "string") {
          if (!this.#drawn) this.dispatchEvent(new MessageEvent("message", { data: RESET }));
          this.#drawn = true;
          this.dispatchEvent(new MessageEvent("message", { data }));
        } else if (!data.startsWith('["pong"')) {
          this.dispatchEvent(new MessageEvent("message", { data }));
        }
        this.#show();
      };
      socket.onclose = ({ code }) => {
        if (socket !== this.#socket) return;
        const now = performance.now();
        this.#socket = this.#asked = null;
        if (code === 1001) this.#ended = true; // until a server lets the page in
        this.#closed = code === 1000;
        if (now - this.#since > LONGEST_WAIT) this.#wait = FIRST_WAIT;
        this.#next = Math.max(this.#next, now + this.#wait);
        if (this.#closed) this.dispatchEvent(new Event("close"));
        this.#show();
      };
    }

    #show() {
      const now = performance.now();
      const seconds = Math.round((now - this.#heard) / 1000);
      const silent = this.#socket !== null && this.#silent();
      const lost = this.#socket === null;
      let title = "";
      let why = "";
      if (this.#refusal) {
        title = "The server does not let this page in.";
        why = `It says: ${this.#refusal}`;
      } else if (this.#ended) {
        title = "tfmux serve has ended.";
      } else if (silent) {
        title = `No answer for ${seconds} s.`;
        why = "The network or the server stands still. What you type may not arrive.";
      } else if (lost) {
        title = `No connection for ${seconds} s.`;
      } else if (!this.#drawn) {
        title = "Opening again …";
      }
      if ((lost || this.#ended) && !this.#refusal) {
        why = "If this stays: start tfmux serve again, and open the address that it prints.";
      }
      const banner = document.getElementById("banner");
      const first = !document.body.classList.contains("-first-byte");
      banner.hidden = this.#closed || !title || (first && !silent && !lost);
      for (const [name, text] of [["title", title], ["why", why]]) {
        const part = document.getElementById(`banner-${name}`);
        if (part.textContent !== text) part.textContent = text;
      }
    }
  }

  const connect = window.onload;
  window.onload = null;

  window.addEventListener("load", async (event) => {
    const terminal = document.getElementById("terminal");

    // Seen from the browser: behind a forwarded port the server's own address is another one.
    const scheme = window.location.protocol === "https:" ? "wss:" : "ws:";
    terminal.dataset.sessionWebsocketUrl = `${scheme}//${window.location.host}/ws`;
    window.WebSocket = Connection;

    // Cells are measured once, when the terminal opens: with the font that will be drawn.
    const fonts = ["16px", "bold 16px", "italic 16px"];
    await Promise.allSettled(fonts.map((font) => document.fonts.load(`${font} "Roboto Mono"`)));
    connect.call(window, event);

    // textual.js tells the server of each focus: not before the connection is open.
    const focus = () => {
      const state = document.body.classList;
      if (state.contains("-closed")) document.getElementById("again").focus();
      else if (state.contains("-loaded")) terminal.querySelector("textarea").focus();
    };
    window.addEventListener("focus", focus);
    new MutationObserver(focus).observe(document.body, { attributeFilter: ["class"] });
  });
})();
