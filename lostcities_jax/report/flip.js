const positions = document.querySelectorAll("figure");
const slider = document.getElementById("ply");
function show(ply) {
  slider.value = ply;
  positions.forEach((position, index) => { position.hidden = index !== Number(slider.value); });
}
slider.oninput = () => show(slider.value);
document.getElementById("back").onclick = () => show(Number(slider.value) - 1);
document.getElementById("on").onclick = () => show(Number(slider.value) + 1);
document.onkeydown = (event) => {
  const ways = { ArrowLeft: -1, ArrowRight: 1 };
  if (event.key in ways && event.target !== slider) show(Number(slider.value) + ways[event.key]);
};
