// Says what went wrong where the picture cannot be drawn, such as a browser without WebGL.
"use strict";

addEventListener("error", (event) => {
  const text = document.getElementById("failure");
  text.hidden = false;
  text.textContent = /webgl/i.test(event.message)
    ? "This browser has no WebGL, which the picture needs. Switch on hardware acceleration, or open the page in another browser."
    : `The page stopped: ${event.message}`;
});
