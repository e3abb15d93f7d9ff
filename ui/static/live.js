// Keeps a view fresh: when the server says that something new is known, the same address is asked
// for again, and the parts of the page whose text has changed are replaced. Without this file the
// page is complete, and reloads by itself.
"use strict";

(() => {
  const body = document.body;
  const age = () => document.getElementById("age");
  let offset = 0; // of this clock to the server's
  let busy = false;
  let again = false;

  const span = (ms) => {
    const s = Math.max(0, ms) / 1000;
    if (s < 10) return `${s.toFixed(1)} s`;
    if (s < 120) return `${Math.round(s)} s`;
    return `${Math.floor(s / 60)} min ${String(Math.round(s % 60)).padStart(2, "0")} s`;
  };

  const tick = () => {
    const element = age();
    const asOf = element && Number(element.dataset.asOfMs);
    if (!asOf) return;
    const since = Date.now() + offset - asOf;
    const words = element.querySelector(".since");
    if (words) words.textContent = span(since);
    element.classList.toggle("old", since > 15000);
  };

  const stops = (part) => [...part.querySelectorAll("a,button,input,select,summary,[tabindex]")];
  const lines = (element) => element.closest("details")?.textContent; // of a log, behind a summary

  const place = (element) => {
    if (!element || element === body) return null;
    const part = element.closest("[data-live]");
    if (!part) return null;
    const at = stops(part).indexOf(element);
    return { part: part.id, href: element.getAttribute("href"), lines: lines(element), at };
  };

  const focusAgain = (was) => {
    const part = was && document.getElementById(was.part);
    if (!part) return;
    const all = stops(part);
    const same = was.href ? all.find((each) => each.getAttribute("href") === was.href)
      : was.lines && all.find((each) => lines(each) === was.lines);
    const found = same || all[was.at];
    if (found) found.focus({ preventScroll: true });
  };

  const isTypedInto = (part) => {
    const field = document.activeElement;
    return field && part.contains(field) && field.matches("input,select,textarea");
  };

  const replaceParts = (fresh) => {
    const was = place(document.activeElement);
    let focusLost = false;
    for (const part of fresh.querySelectorAll("[data-live][id]")) {
      const old = document.getElementById(part.id);
      if (!old || isTypedInto(old) || old.outerHTML === part.outerHTML) continue;
      const scrolled = [...old.querySelectorAll(".wide")].map((each) => each.scrollLeft);
      const open = new Set([...old.querySelectorAll("details[open]")].map(lines));
      focusLost = focusLost || old.contains(document.activeElement);
      const next = document.importNode(part, true);
      old.replaceWith(next);
      next.querySelectorAll("details").forEach((each) => { each.open = open.has(lines(each)); });
      next.querySelectorAll(".wide").forEach((each, at) => { each.scrollLeft = scrolled[at] || 0; });
    }
    const known = new Set([...fresh.querySelectorAll("[data-live][id]")].map((each) => each.id));
    const missing = [...document.querySelectorAll("main [data-live][id]")];
    const hasOthers = missing.length !== known.size || missing.some((each) => !known.has(each.id));
    const main = fresh.querySelector("main");
    if (hasOthers && main && !document.querySelector("main :is(input,select):focus")) {
      document.querySelector("main").replaceWith(document.importNode(main, true));
      focusLost = true;
    }
    const newAge = fresh.getElementById("age");
    if (newAge && age()) age().replaceWith(document.importNode(newAge, true));
    if (focusLost) focusAgain(was);
    tick();
  };

  const refresh = async () => {
    if (busy) { again = true; return; }
    busy = true;
    try {
      const answer = await fetch(location.href, { credentials: "same-origin" });
      if (answer.ok || answer.status === 404) {
        const text = await answer.text();
        replaceParts(new DOMParser().parseFromString(text, "text/html"));
      }
    } catch {
      // The server has ended or is restarted: the age of the data says so.
    } finally {
      busy = false;
      if (again) { again = false; setTimeout(refresh, 250); }
    }
  };

  setInterval(tick, 500);
  if (body.dataset.live !== "yes") return;
  let stream = null;
  // A browser opens six connections to a server at most: only a page that is seen keeps one.
  const follow = () => {
    if (document.hidden) {
      if (stream) stream.close();
      stream = null;
      return;
    }
    if (stream) return;
    const opened = new EventSource("/changes");
    let first = true;
    stream = opened;
    opened.onmessage = () => {
      if (!first) refresh();
      first = false;
    };
    opened.onerror = () => {
      if (opened.readyState !== EventSource.CLOSED) return; // else the browser tries again
      if (stream === opened) stream = null;
      setTimeout(() => { if (!document.hidden && !stream) { refresh(); follow(); } }, 5000);
    };
  };
  document.addEventListener("visibilitychange", () => {
    follow();
    if (!document.hidden) refresh();
  });
  follow();
})();
