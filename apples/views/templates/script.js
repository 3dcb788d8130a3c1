// The pages are complete without this. It sets what changes on the page of a job, and plans while one types.
(() => {
  "use strict";

  const live = document.querySelector("[data-live]");
  const look = async () => {
    const late = live.querySelector("[data-late]");
    try {
      const answer = document.hidden ? null : await fetch(live.dataset.live);
      if (answer && !answer.ok) throw new Error(answer.status);
      const now = answer && (await answer.json());
      if (now && now.state !== live.dataset.state) return location.reload();
      for (const one of now ? live.querySelectorAll("[data-key]") : []) {
        const text = String(now[one.dataset.key] ?? "");
        if (one.textContent !== text) one.textContent = text;
      }
      if (now) late.textContent = "";
    } catch {
      late.textContent ||= "; no answer from apples serve since " + new Date().toLocaleTimeString();
    }
    setTimeout(look, 2000);
  };
  if (live) setTimeout(look, 2000);

  const ask = document.getElementById("ask");
  let timer, turn = 0;
  const plan = async (mine) => {
    const url = "/plan?" + new URLSearchParams(new FormData(ask));
    const page = new DOMParser().parseFromString(await (await fetch(url)).text(), "text/html");
    const answer = page.getElementById("answer");
    if (mine !== turn) return;
    if (!answer) return location.reload();
    document.getElementById("answer").replaceWith(answer);
    history.replaceState(null, "", url);
  };
  ask?.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(plan, 150, ++turn);
  });
})();
