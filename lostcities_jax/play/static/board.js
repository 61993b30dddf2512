// Drawing the table: plain values from the server in, elements out. Nothing is kept here.

let suits = [];
let wager = "";

export function useSuits(setup) {
  suits = setup.suits;
  wager = setup.wager;
  suits.forEach((suit, color) => {
    document.documentElement.style.setProperty(`--fill-${color}`, suit.fill);
    document.documentElement.style.setProperty(`--ink-${color}`, suit.ink);
  });
}

// An element with attributes and children; text never becomes markup.
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "onclick") element.addEventListener("click", value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) {
      element.setAttribute(name, value);
    }
  }
  element.append(...children);
  return element;
}

export const nameOf = ([color, number]) =>
  `${suits[color].name} ${number === 0 ? "wager" : number}`;

function shapeOf(color) {
  const space = "http://www.w3.org/2000/svg";
  const image = document.createElementNS(space, "svg");
  image.setAttribute("viewBox", "-1.2 -1.2 2.4 2.4");
  image.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(space, "path");
  path.setAttribute("d", suits[color].shape);
  image.append(path);
  return image;
}

// The face of a card; numbers stand at the top and at the bottom, as either may be covered.
function faceOf([color, number], extra = "") {
  const corner = () =>
    make("span", { class: "corner" }, make("b", {}, number === 0 ? wager : String(number)),
      make("i", {}, suits[color].letter));
  return make("span", { class: `card suit-${color} ${extra}`, "aria-hidden": "true" },
    corner(), shapeOf(color), corner());
}

const backOf = () => make("span", { class: "card back", "aria-hidden": "true" });

// How the table is shown: whose side is near, what may be clicked, what has just happened.
//   near: seat at the bottom      names: of both seats       open: whether a hand can be used
//   selected: slot or null        plays, piles: colour -> function, for what may be clicked
//   deck: function or null        pick: slot -> function     fresh: places of the last moves
export function drawTable(table, show) {
  const game = document.getElementById("game");
  game.style.setProperty("--columns", table.piles.length + 1);
  drawSide(document.getElementById("far"), table, 1 - show.near, show, true);
  drawMiddle(document.getElementById("middle"), table, show);
  drawSide(document.getElementById("near"), table, show.near, show, false);
  drawHand(document.getElementById("hand"), table, show);
}

function drawSide(section, table, seat, show, far) {
  section.setAttribute("aria-label", show.names[seat]);
  const line = make("div", { class: "line" },
    make("strong", {}, show.names[seat]),
    make("span", { class: "points" }, `${table.scores[seat]} points`),
    far ? farHand(table, seat) : "");
  const columns = make("div", { class: `columns ${far ? "up" : "down"}` },
    ...table.expeditions[seat].map((numbers, color) =>
      expeditionOf(table, seat, color, numbers, show, far)), make("span"));
  section.replaceChildren(...(far ? [line, columns] : [columns, line]));
}

function farHand(table, seat) {
  const open = table.hands[seat] ?? table.known[seat];
  const hidden = table.hand_sizes[seat] - open.length;
  const known = open.map(nameOf).join(", ");
  const text = `${table.hand_sizes[seat]} cards in hand` + (known ? `: ${known}` : "") +
    (known && hidden ? `, and ${hidden} unknown` : "");
  return make("span", { class: "small-hand", role: "img", "aria-label": text, title: text },
    ...open.map((card) => faceOf(card, "small")),
    ...Array.from({ length: hidden }, () => make("span", { class: "card back small" })));
}

function expeditionOf(table, seat, color, numbers, show, far) {
  const play = far ? undefined : show.plays[color];
  const points = table.points[seat][color];
  const told = numbers.map((number) => (number === 0 ? "wager" : number)).join(", ");
  const label = `${show.names[seat]}, ${suits[color].name} expedition: ` +
    (numbers.length ? `${told}; ${points} points` : "none");
  const fresh = show.fresh.has(`${seat}-${color}`);
  return make("button", {
    type: "button", class: "column", disabled: !play, onclick: play ?? (() => {}),
    "data-key": `expedition-${seat}-${color}`,
    "aria-label": play ? `Play on ${label}` : label,
  },
  ...(numbers.length ? [] : [placeOf(color)]),
  make("span", { class: "stack" }, ...numbers.map((number, index) =>
    faceOf([color, number], fresh && index === numbers.length - 1 ? "fresh" : ""))),
  make("span", { class: "points", "aria-hidden": "true" }, numbers.length ? String(points) : ""));
}

const placeOf = (color) =>
  make("span", { class: `place suit-${color}`, "aria-hidden": "true" }, shapeOf(color),
    make("i", {}, suits[color].letter));

function drawMiddle(section, table, show) {
  const piles = table.piles.map((pile, color) => {
    const use = show.piles[color];
    const barred = table.barred === color;
    const top = pile.length ? nameOf([color, pile.at(-1)]) : "empty";
    const content = pile.map((number) => number || "wager").join(", ");
    const label = `${suits[color].name} pile: ${top}, ${pile.length} cards` +
      (barred ? ", just discarded on" : "");
    return make("button", {
      type: "button", class: "column pile", disabled: !use, onclick: use?.act ?? (() => {}),
      "data-key": `pile-${color}`, "aria-label": use ? `${use.what} ${label}` : label,
      title: pile.length ? `from bottom to top: ${content}` : "empty",
    },
    pile.length
      ? faceOf([color, pile.at(-1)], show.fresh.has(`pile-${color}`) ? "fresh" : "")
      : placeOf(color),
    make("span", { class: "count", "aria-hidden": "true" }, barred ? "barred" : pile.length || ""));
  });
  const deck = make("button", {
    type: "button", class: "column pile", disabled: !show.deck, onclick: show.deck ?? (() => {}),
    "data-key": "deck",
    "aria-label": `${show.deck ? "Draw from the deck" : "Deck"}: ${table.deck_left} cards left`,
  }, table.deck_left ? backOf() : make("span", { class: "place" }),
  make("span", { class: "count", "aria-hidden": "true" }, `deck ${table.deck_left}`));
  section.replaceChildren(...piles, deck);
}

function drawHand(section, table, show) {
  const hand = table.hands[show.near] ?? [];
  const seen = table.known[show.near].map(String);
  section.style.setProperty("--cards", Math.min(hand.length, 8));
  section.setAttribute("aria-label", `Hand of ${show.names[show.near]}`);
  section.replaceChildren(...hand.map((card, slot) => {
    const at = seen.indexOf(String(card));
    if (at >= 0) seen.splice(at, 1);
    return make("button", {
      type: "button", class: "held", disabled: !show.open, onclick: () => show.pick(slot),
      "data-key": `hand-${slot}`, "aria-pressed": String(show.selected === slot),
      "aria-label": nameOf(card) + (at >= 0 ? ", seen by the agent" : ""),
    }, faceOf(card, at >= 0 ? "seen" : ""));
  }));
}
