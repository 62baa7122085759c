// The player as it is in the registry; `look` notes the number that each picture on its canvas has: ten fields, black or white.
import "@moq/watch/element";

const player = document.querySelector("moq-watch");
const canvas = player.querySelector("canvas");
const seen = new Set();
// The times of the pictures that the player's decoder was given and gave back.
const given = new Set();
const decoded = new Set();

// The player takes the browser's decoder when it begins to play.
window.VideoDecoder = class extends VideoDecoder {
    constructor(init) {
        super({ ...init, output: frame => { decoded.add(frame.timestamp); init.output(frame); } });
    }
    decode(chunk) {
        given.add(chunk.timestamp);
        super.decode(chunk);
    }
};

function look() {
    if (canvas.width === 320 && canvas.height === 180) {
        const row = canvas.getContext("2d").getImageData(0, 164, 320, 1).data;
        let number = 0;
        for (let field = 0; field < 10; field += 1) {
            if (row[(field * 32 + 16) * 4] > 128) number |= 1 << field;
        }
        // Before the first picture the canvas is black, as is picture 0.
        if (player.video.out.stats.peek()) seen.add(number);
    }
    requestAnimationFrame(look);
}
look();

window.watch = (url, name) => {
    player.url = url;
    player.name = name;
    return true;
};
window.figures = pictures => ({
    status: player.connection.status.peek(),
    painted: seen.size,
    missing: Array.from({ length: pictures }, (_, number) => number).filter(number => !seen.has(number)).join(" "),
    given: given.size,
    decoded: decoded.size,
    sound_bytes: player.audio.out.stats.peek()?.bytesReceived ?? 0,
    video: player.catalog?.video,
});
