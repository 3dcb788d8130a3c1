// The pages are complete without this. It follows what is open, and plans while one types.
(() => {
  "use strict";

  const content = document.getElementById("content");
  const live = () => content.querySelector("[data-live]");
  const late = content.querySelector(".late");
  const own = (page) => [...page.children].filter((one) => !one.hasAttribute("data-once"));
  let source, last, loading, again, waits;

  const say = (text) => {
    if (!text || !late.textContent.startsWith(text))
      late.textContent = text && text + " Since " + new Date().toLocaleTimeString() + ".";
    content.classList.toggle("stale", text !== "");
  };

  const form = (one) => one.querySelector("form")?.getAttribute("action");
  const used = (one) => form(one) && one.querySelector("details[open], :focus") !== null;

  // Put in what is another on a page that was fetched; a form that somebody uses stays as it is.
  const renew = (box, fresh) => {
    const old = own(box);
    for (const one of own(fresh)) {
      const same = (mine) => mine.isEqualNode(one) || (used(mine) && form(mine) === form(one));
      const place = old.findIndex(same);
      if (place < 0) {
        box.insertBefore(one, old[0] || null);
        continue;
      }
      old.splice(0, place).forEach((gone) => gone.remove());
      const mine = old.shift();
      if (!mine.isEqualNode(one)) renew(mine, one);
    }
    old.forEach((gone) => gone.remove());
  };

  const show = (page) => {
    const held = document.activeElement && document.activeElement.href;
    renew(content, page.getElementById("content"));
    if (held && document.activeElement === document.body) {
      const link = [...content.querySelectorAll("a")].find((one) => one.href === held);
      if (link) link.focus({ preventScroll: true });
    }
    if (!live()) stop();
  };

  // Fetch this page anew, not more often than every second and a half.
  const load = async () => {
    if (loading) return (again = true);
    loading = true;
    setTimeout(() => {
      loading = false;
      if (again) load();
    }, 1500);
    again = false;
    try {
      const answer = await fetch(live()?.dataset.page || location.href); // after a button that was refused
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (answer.status === 401) return say(page.querySelector("main").textContent.trim());
      if (!answer.ok) throw new Error(answer.status);
      show(page);
      say("");
      return true;
    } catch {
      say("No answer from apples serve.");
    }
  };

  const stop = () => {
    clearTimeout(waits);
    if (source) source.close();
    source = null;
  };

  const follow = () => {
    if (source || document.hidden || !live()) return;
    const url = new URL(live().dataset.live, location.href);
    if (last) url.searchParams.set("since", last);
    source = new EventSource(url);
    source.onopen = () => say("");
    source.onerror = () => {
      say("No answer from apples serve.");
      if (!source || source.readyState !== EventSource.CLOSED) return; // it tries again by itself
      stop();
      waits = setTimeout(poll, 3000);
    };
    source.addEventListener("changed", (event) => {
      last = event.lastEventId;
      load();
    });
    source.addEventListener("text", (event) => {
      last = event.lastEventId;
      const texts = JSON.parse(event.data);
      for (const one of content.querySelectorAll("[data-key]")) {
        const text = texts[one.dataset.key];
        if (text !== undefined && one.textContent !== text) one.textContent = text;
      }
    });
  };

  // Where there are no streams, as behind some proxies, the page is fetched instead.
  const poll = async () => {
    if (document.hidden) return;
    if (await load()) follow();
    if (!source && live()) waits = setTimeout(poll, 3000);
  };

  document.addEventListener("visibilitychange", () => {
    stop();
    if (!document.hidden && live()) poll();
  });
  follow();

  for (const one of document.querySelectorAll("[data-slider]")) {
    const said = document.createElement("output");
    one.type = "range";
    one.after(said);
    const tell = () => (said.textContent = one.value);
    one.addEventListener("input", tell);
    tell();
  }

  // Change the form of a file in place: what is unfolded stays so, and the new entry has the focus.
  content.addEventListener("submit", async (event) => {
    const form = event.target, button = event.submitter;
    if (form.id !== "file" || !button || button.value === "save") return;
    event.preventDefault();
    const fields = new URLSearchParams(new FormData(form));
    fields.set(button.name, button.value);
    const unfolded = [...form.querySelectorAll("details[open] summary bdi")].map((one) => one.textContent);
    try {
      const answer = await fetch(form.action, { method: "POST", body: fields });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      content.replaceChildren(...page.getElementById("content").childNodes);
    } catch {
      return say("No answer from apples serve.");
    }
    for (const one of content.querySelectorAll("summary"))
      if (unfolded.includes(one.querySelector("bdi")?.textContent)) one.parentElement.open = true;
    const again = [...content.querySelectorAll("button")].find((one) => one.name === button.name && one.value === button.value);
    (content.querySelector("[autofocus]") || again)?.focus();
  });

  // Enter in a field beside a button to add entries presses that button, not the first of the form.
  content.addEventListener("keydown", (event) => {
    const add = event.key === "Enter" && event.target.matches("input") && event.target.closest("p.ask")?.querySelector("button[name=add]");
    if (!add) return;
    event.preventDefault();
    add.click();
  });

  const ask = document.getElementById("ask");
  let timer, turn = 0;
  const plan = async (mine) => {
    const url = location.pathname + "?" + new URLSearchParams(new FormData(ask));
    const page = new DOMParser().parseFromString(await (await fetch(url)).text(), "text/html");
    const answer = page.getElementById("answer");
    if (mine !== turn) return;
    if (!answer) return location.reload();
    document.getElementById("answer").replaceWith(answer);
    history.replaceState(null, "", url);
  };
  // A live plan measures hosts: only the button asks for it.
  const measures = () => ["weather", "weather2"].some((name) => ask.elements[name]?.value === "live");
  ask?.addEventListener("input", () => {
    clearTimeout(timer);
    document.getElementById("answer").classList.toggle("stale", measures());
    if (measures()) return turn++;
    timer = setTimeout(plan, 150, ++turn);
  });
})();
