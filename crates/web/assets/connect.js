// The connection of a page to the server that it came from.

// A WebTransport to `path`, which presents the token; its certificate is known by the hash in config.json.
export async function connect(path, token) {
  const answer = await fetch("config.json", { cache: "no-store" });
  const { certificate_sha256: hash } = await answer.json();
  const options = { congestionControl: "low-latency" };
  if (hash) {
    const value = Uint8Array.from(atob(hash), (letter) => letter.charCodeAt(0));
    options.serverCertificateHashes = [{ algorithm: "sha-256", value }];
  }
  return new WebTransport(`https://${location.host}${path}?token=${encodeURIComponent(token)}`, options);
}
