//! The body of the fuzz target, which a test also runs on every file of the corpus.

use ontempo_foundation::Duration;
use ontempo_session::ReceiverUrl;
use ontempo_session::message::{Content, Label, MAX_GAPS, Report, end, gap, media, read};

/// Parses any bytes as a message, a URL, a label and a report; what is accepted must encode to the same
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
    let text = std::str::from_utf8(bytes).unwrap_or_default();
    if let Ok(url) = text.parse::<ReceiverUrl>() {
        assert_eq!(url.to_string().parse(), Ok(url));
    }
    if let Ok(label) = text.parse::<Label>() {
        assert_eq!(label.to_string().parse(), Ok(label));
    }
    if let Ok(report) = serde_json::from_slice::<Report>(bytes) {
        let (all, wrong) = report.datagrams();
        assert!(wrong <= all);
        let _ = report.missed(&Report::default(), Duration::from_millis(200));
    }
}
