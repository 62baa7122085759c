//! A socket and a folder to test with.

use std::path::PathBuf;

use super::*;

/// A folder of this test alone, empty.
pub(super) fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("ontempo-qos-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

pub(super) fn socket(id: u32) -> SocketReport {
    let parameter = |parameter, asked| ParameterReport {
        parameter,
        asked,
        coerced: false,
        delivered: Some(asked + 1),
        violated: true,
        begun: 2,
        changed_ms: Some(5_000),
    };
    SocketReport {
        id,
        name: format!("café {id}"),
        role: Role::Receiver,
        carrier: Carrier::Udp,
        local: "192.0.2.1:5000".to_owned(),
        remote: "192.0.2.2:5000".to_owned(),
        dscp: 34,
        reservation: Reservation::ControlledLoad,
        reason: String::new(),
        opened_ms: 1_000,
        sent_messages: 40,
        sent_bytes: 51_200,
        messages: 35,
        bytes: 44_800,
        lost_messages: 5,
        throughput: 614_400.0,
        loss: Some(12.5),
        delay: Some(0.0125),
        delay_error: Some(0.0005),
        jitter: Some(0.001),
        parameters: vec![parameter(1, 60_000), parameter(6, 100_000)],
        violations: Vec::new(),
    }
}

pub(super) fn collected(index: u32) -> Collected {
    Collected { index, process: 7, socket: SocketReport { id: 1, ..socket(1) } }
}
