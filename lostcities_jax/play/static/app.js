// The page: asks the server, shows what it answers, and turns clicks and keys into requests.
// The server owns the game; `view` is the last answer, and is replaced whole.

import { drawTable, make, nameOf, useSuits } from "./board.js";

const byId = (id) => document.getElementById(id);
const STORED = "lostcities-match";

let setup = null; // what the server offers
let session = null; // name of the match
let view = null; // the match as the server last told it
let selected = null; // slot of the chosen card
let busy = false; // a request is under way
let records = []; // lines of the opened file
let replay = null; // the recorded game as the server last told it

// ---- Asking the server ------------------------------------------------------------------

async function ask(path, body) {
  const options = body === undefined ? {} : {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  };
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Error("The server does not answer. Is it still running?");
  }
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error);
  return answer;
}

const pause = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

function complain(text) {
  byId("banner").textContent = text;
  byId("banner").hidden = !text;
}

// One request at a time; whatever fails is said in one line at the top.
async function once(task) {
  if (busy) return;
  busy = true;
  complain("");
  try {
    await task();
  } catch (error) {
    complain(error.message);
  } finally {
    busy = false;
  }
}

const change = (name, body = {}) => once(async () => {
  show(await ask(`/api/matches/${session}/${name}`, body));
});

const act = (action) => change("act", { action, moves: view.moves });

// ---- The match --------------------------------------------------------------------------

const isLegal = (action) => view.legal.includes(action);
const deckAction = () => 2 * setup.rules.hand;

function show(next) {
  view = next;
  selected = null;
  replay = null;
  byId("hint").hidden = true;
  draw();
}

function names() {
  const both = ["", ""];
  both[view.seat] = "You";
  both[1 - view.seat] = view.opponent;
  return both;
}

function draw() {
  const focused = document.activeElement?.dataset?.key;
  if (replay) drawReplay();
  else drawMatch();
  document.querySelector("main").hidden = false;
  byId("replay").hidden = !replay;
  byId("score").closest("section").hidden = Boolean(replay);
  keepFocus(focused);
}

function drawMatch() {
  const { table, seat } = view;
  const drawing = table.phase === "draw" && view.legal.length > 0;
  drawTable(table, {
    near: seat,
    names: names(),
    open: view.legal.length > 0 && !drawing,
    selected,
    pick: (slot) => { selected = selected === slot ? null : slot; draw(); },
    plays: drawing ? {} : playTargets(table, seat),
    piles: drawing ? drawTargets(table) : discardTargets(table, seat),
    deck: drawing && isLegal(deckAction()) ? () => act(deckAction()) : null,
    fresh: placesOf(view.log, seat),
  });
  byId("say").textContent = sentence();
  drawButtons(drawing);
  drawScore();
  drawLog(view.log, seat);
  const saved = view.round > 1 || view.over;
  byId("export").hidden = !saved;
  if (saved) byId("export").href = `/api/matches/${session}/games.jsonl`;
  byId("stop").hidden = view.over;
}

function playTargets(table, seat) {
  if (selected === null || !isLegal(selected)) return {};
  const slot = selected;
  return { [table.hands[seat][slot][0]]: () => act(slot) };
}

function discardTargets(table, seat) {
  if (selected === null) return {};
  const action = setup.rules.hand + selected;
  return { [table.hands[seat][selected][0]]: { what: "Discard on", act: () => act(action) } };
}

function drawTargets(table) {
  const targets = {};
  table.piles.forEach((_, color) => {
    const action = deckAction() + 1 + color;
    if (isLegal(action)) targets[color] = { what: "Take from", act: () => act(action) };
  });
  return targets;
}

// Where the newest moves of the agent, or of both in a recording, have left something.
function placesOf(log, near) {
  const places = new Set();
  const newest = replay ? log.slice(-1) : log.slice(-2).filter((entry) => entry.seat !== near);
  for (const { seat, move } of newest) {
    if (move[0] === "play") places.add(`${seat}-${move[1]}`);
    if (move[0] === "discard") places.add(`pile-${move[1]}`);
  }
  return places;
}

function sentence() {
  if (view.over) {
    const [own, other] = view.scores.at(-1);
    const result = own > other ? "You win" : own < other ? `${view.opponent} wins` : "A tie in";
    const [mine, theirs] = sums();
    const round = `${result} round ${view.round}, ${own} : ${other}.`;
    if (!view.match_over) return `${round} In all you have ${mine}, ${view.opponent} ${theirs}.`;
    const end = mine > theirs ? "You win" : mine < theirs ? `${view.opponent} wins` : "A tie in";
    return `${view.length > 1 ? round : ""} ${end} the match, ${mine} : ${theirs}.`;
  }
  const last = view.log.slice(-2).filter((entry) => entry.seat !== view.seat);
  const told = last.map((entry) => entry.text).join(", ");
  if (view.table.phase === "draw") return "Draw a card: the deck, or the top of a pile.";
  const turn = selected === null
    ? "Your turn: choose a card of your hand."
    : `Play or discard the ${nameOf(view.table.hands[view.seat][selected])}.`;
  return told && selected === null ? `${told}. ${turn}` : turn;
}

function drawButtons(drawing) {
  const button = (key, text, enabled, onclick, primary = false) => make("button", {
    type: "button", "data-key": key, disabled: !enabled, onclick, class: primary ? "primary" : null,
  }, text);
  const buttons = [];
  if (view.match_over) {
    buttons.push(button("again", "New match", true, openNew, true));
  } else if (view.over) {
    buttons.push(button("next", "Next round", true, () => change("next"), true));
  } else if (drawing) {
    buttons.push(button("take", "Draw from the deck", true, () => act(deckAction()), true));
  } else {
    const chosen = selected !== null;
    buttons.push(
      button("play", "Play", chosen && isLegal(selected), () => act(selected), true),
      button("discard", "Discard", chosen, () => act(setup.rules.hand + selected)));
  }
  buttons.push(
    button("undo", "Undo", view.undo, () => change("undo")),
    button("hint", "Hint", !view.over, hint));
  byId("buttons").replaceChildren(...buttons);
}

const sums = () => view.scores.reduce(([a, b], [own, other]) => [a + own, b + other], [0, 0]);

function drawScore() {
  const row = (tag, kind, ...cells) =>
    make("tr", { class: kind }, make("th", { scope: "row" }, cells[0]),
      ...cells.slice(1).map((cell) => make(tag, {}, String(cell))));
  const head = make("thead", {}, make("tr", {}, make("td"),
    make("th", { scope: "col" }, "You"), make("th", { scope: "col" }, view.opponent)));
  const rows = view.scores.map((scores, index) =>
    row("td", null, `Round ${index + 1} of ${view.length}`, ...scores));
  byId("score").replaceChildren(head, make("tbody", {}, ...rows,
    ...(rows.length > 1 ? [row("td", "sum", "Sum", ...sums())] : []),
    ...(view.seed === null ? [] : [row("td", null, "Seed", view.seed, "")])));
}

function drawLog(log, near) {
  byId("log").replaceChildren(...log.map((entry) =>
    make("li", { class: entry.seat === near ? "mine" : null }, entry.text)));
  byId("log").scrollTop = byId("log").scrollHeight;
}

// Everything is drawn anew, so the focus is put back; or where the next thing can be done.
function keepFocus(key) {
  if (!key || document.querySelector("dialog[open]")) return;
  const same = document.querySelector(`[data-key="${key}"]:not(:disabled)`);
  const other = document.querySelector(
    "#buttons .primary:not(:disabled), .held:not(:disabled), #buttons button:not(:disabled)");
  (same ?? other)?.focus();
}

const hint = () => once(async () => {
  const hints = await ask(`/api/matches/${session}/hint`, {});
  byId("hint-list").replaceChildren(...hints.filter((one) => one.probability >= 0.005).slice(0, 6)
    .map((one) => make("li", {}, make("span", {}, one.text),
      make("span", {}, `${Math.round(100 * one.probability)}\u00a0%`),
      make("meter", { value: one.probability, "aria-hidden": "true" }))));
  byId("hint").hidden = false;
  const [best] = hints;
  const share = Math.round(100 * best.probability);
  byId("say").textContent = `${view.opponent} would ${best.text} here (${share}\u00a0%).`;
});

// ---- Starting, and going on with a match after the page was reloaded ------------------------

function openNew() {
  byId("new-dialog").showModal();
}

const start = (wanted) => once(async () => {
  const begun = await ask("/api/matches", wanted);
  session = begun.id;
  sessionStorage.setItem(STORED, session);
  byId("new-dialog").close();
  show(begun);
});

function startAsAsked(event) {
  event.preventDefault();
  const seed = byId("seed").value.trim();
  start({
    opponent: byId("opponent").value,
    seat: Number(document.querySelector("input[name=seat]:checked").value),
    seed: seed === "" ? null : Number(seed),
    rounds: Number(byId("rounds").value),
  });
}

async function begin() {
  for (;;) {
    try {
      setup = await ask("/api/setup");
      if (setup.ready) break;
      complain("Compiling the agents; this takes some seconds …");
    } catch (error) {
      complain(error.message);
    }
    await pause(400);
  }
  complain("");
  useSuits(setup);
  for (const id of ["opponent", "replay-opponent"]) {
    byId(id).replaceChildren(...setup.opponents.map((name) => make("option", {}, name)));
  }
  document.querySelector(`input[name=seat][value="${setup.seat}"]`).checked = true;
  byId("seed").value = setup.seed ?? "";
  describeRules();
  const stored = sessionStorage.getItem(STORED);
  if (stored) {
    try {
      session = stored;
      show(await ask(`/api/matches/${stored}`));
      return;
    } catch {
      sessionStorage.removeItem(STORED); // forgotten by the server
    }
  }
  openNew();
}

function describeRules() {
  const rules = setup.rules;
  const letters = setup.suits.slice(0, rules.colors).map((suit) => suit.letter);
  byId("letters").textContent = letters.join(" ");
  const top = rules.lowest + rules.ranks - 1;
  byId("rules").replaceChildren(make("p", {},
    `Every turn: play or discard one card, then draw one, from the deck or the top of a pile ` +
    `(not the pile just discarded on). Numbers ${rules.lowest} to ${top} of a colour are played ` +
    `upwards; wagers (${setup.wager}) only before any number. An expedition with any card scores ` +
    `its sum minus ${-rules.penalty}, times 2, 3, 4 with one, two, three wagers, plus ${rules.bonus} ` +
    `with ${rules.bonus_cards} cards or more. The round ends when the deck is used up, or after ` +
    `${rules.max_turns} turns. Scores of the rounds are summed; whoever is ahead starts the next.`));
}

// ---- Recorded games -------------------------------------------------------------------------

async function openFile() {
  const file = byId("file").files[0];
  byId("file").value = "";
  if (!file) return;
  records = (await file.text()).split("\n").filter((line) => line.trim());
  if (!records.length) {
    complain(`${file.name} holds no games`);
    return;
  }
  byId("replay-game").replaceChildren(...records.map((_, index) =>
    make("option", { value: index }, `${index + 1} of ${records.length}`)));
  showRecord(0);
}

const showRecord = (move) => once(async () => {
  replay = await ask("/api/replay", { record: records[byId("replay-game").value], move });
  draw();
});

function drawReplay() {
  const { table, moves } = replay;
  drawTable(table, {
    near: 0, names: replay.names, open: false, selected: null, pick: () => {},
    plays: {}, piles: {}, deck: null, fresh: placesOf(replay.log, 0),
  });
  const last = replay.log.at(-1);
  byId("say").textContent = last ? last.text : "The deal of a recorded game.";
  byId("buttons").replaceChildren();
  drawLog(replay.log, 0);
  byId("hint").hidden = true;
  byId("replay-move").textContent = `${moves} of ${replay.all_moves}`;
  byId("replay-slider").max = replay.all_moves;
  byId("replay-slider").value = moves;
  const same = Object.keys(setup.rules).every(
    (name) => name === "max_turns" || replay.rules[name] === setup.rules[name]);
  const can = same && table.phase !== "over" && table.turn < setup.rules.max_turns;
  byId("replay-why").textContent = can ? "" : same
    ? "The game is over here; go back to go on from an earlier move."
    : "The game has other rules than this board, so it can only be looked at.";
  for (const seat of [0, 1]) byId(`continue-${seat}`).disabled = !can;
  byId("replay-close").hidden = !view;
}

function step(by) {
  const move = Math.min(Math.max(replay.moves + by, 0), replay.all_moves);
  if (move !== replay.moves) showRecord(move);
}

const goOn = (seat) => start({
  opponent: byId("replay-opponent").value,
  seat,
  record: records[byId("replay-game").value],
  move: replay.moves,
});

// ---- Keys and clicks ------------------------------------------------------------------------

function onKey(event) {
  const typing = event.target.closest?.("input, select, dialog");
  if (typing || event.ctrlKey || event.metaKey || event.altKey || !setup?.ready) return;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const used = key === "?" ? (byId("help-dialog").showModal(), true)
    : replay ? replayKey(key) : view ? matchKey(key) : false;
  if (used) event.preventDefault();
}

function replayKey(key) {
  const by = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[key];
  if (by === undefined) return false;
  step(by);
  return true;
}

// Presses the button of a key, if there is one that can be pressed.
function press(name) {
  const button = document.querySelector(`[data-key="${name}"]:not(:disabled)`);
  button?.click();
  return Boolean(button);
}

function matchKey(key) {
  const drawing = view.table.phase === "draw";
  if (key === "u") return press("undo");
  if (key === "h") return press("hint");
  if (key === "n") return press("next");
  if (key === "t" && drawing) return press("deck");
  if (drawing) {
    const color = setup.suits.findIndex((suit) => suit.letter.toLowerCase() === key);
    return color >= 0 && press(`pile-${color}`);
  }
  if (key === "p") return press("play");
  if (key === "d") return press("discard");
  if (/^[1-9]$/.test(key)) return choose(Number(key) - 1);
  if (key === "ArrowLeft" || key === "ArrowRight") return walk(key === "ArrowRight" ? 1 : -1);
  return false;
}

function choose(slot) {
  const card = document.querySelector(`[data-key="hand-${slot}"]:not(:disabled)`);
  if (!card) return false;
  card.focus();
  if (selected !== slot) card.click();
  return true;
}

function walk(by) {
  const held = view.table.hands[view.seat].length;
  return choose(selected === null ? (by > 0 ? 0 : held - 1) : (selected + by + held) % held);
}

function listen() {
  const clicks = {
    new: openNew,
    import: () => byId("file").click(),
    help: () => byId("help-dialog").showModal(),
    stop: () => confirm("End the match here? The round counts as it stands.") && change("stop"),
    "new-cancel": () => byId("new-dialog").close(),
    "replay-first": () => showRecord(0),
    "replay-back": () => step(-1),
    "replay-on": () => step(1),
    "replay-last": () => step(Infinity),
    "continue-0": () => goOn(0),
    "continue-1": () => goOn(1),
    "replay-close": () => { replay = null; draw(); },
  };
  for (const [id, onclick] of Object.entries(clicks)) byId(id).addEventListener("click", onclick);
  byId("new-form").addEventListener("submit", startAsAsked);
  byId("file").addEventListener("change", openFile);
  byId("replay-game").addEventListener("change", () => showRecord(0));
  byId("replay-slider").addEventListener("change", (event) => showRecord(Number(event.target.value)));
  document.addEventListener("keydown", onKey);
}

listen();
begin();
