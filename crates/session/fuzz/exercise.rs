//! The body of the fuzz target, which a test also runs on every file of the corpus.

use bytes::Bytes;
use ontempo_foundation::Duration;
use ontempo_session::ReceiverUrl;
use ontempo_session::file::message as file;
use ontempo_session::file::{FileLabel, Reply};
use ontempo_session::message::{Content, Label, MAX_GAPS, Report, end, gap, media, read};
use ontempo_session::paths::read_back;

/// Parses any bytes as a message of a stream or of a file, a URL, a label, a reply and a report; what is accepted must encode to the same
/// bytes.
pub(crate) fn session_message(bytes: &[u8]) {
    match read(7, bytes) {
        Ok(Content::Unit(unit)) => {
            assert_eq!(read(7, &media(&unit)), Ok(Content::Unit(unit)));
        }
        Ok(Content::Gap(datagrams)) => {
            assert!(datagrams.len() <= MAX_GAPS, "{} numbers", datagrams.len());
            assert_eq!(gap(&datagrams), bytes);
        }
        Ok(Content::End { datagrams, is_whole }) => assert_eq!(end(datagrams, is_whole), bytes),
        Err(_) => {}
    }
    if let Ok(content) = file::read(&Bytes::copy_from_slice(bytes)) {
        assert_eq!(file::write(&content), bytes);
    }
    if let Ok(reply) = serde_json::from_slice::<Reply>(bytes) {
        let text = serde_json::to_vec(&reply).expect("text");
        assert_eq!(serde_json::from_slice::<Reply>(&text).expect("read back"), reply);
    }
    let text = std::str::from_utf8(bytes).unwrap_or_default();
    if let Ok(label) = text.parse::<FileLabel>() {
        assert_eq!(label.to_string().parse(), Ok(label));
    }
    if let Ok(url) = text.parse::<ReceiverUrl>() {
        assert_eq!(url.to_string().parse(), Ok(url));
    }
    if let Ok(label) = text.parse::<Label>() {
        assert_eq!(label.to_string().parse(), Ok(label));
    }
    assert_eq!(read_back(text), Ok(()));
    if let Ok(report) = serde_json::from_slice::<Report>(bytes) {
        let (all, wrong) = report.datagrams();
        assert!(wrong <= all);
        let _ = report.missed(&Report::default(), Duration::from_millis(200));
    }
}
