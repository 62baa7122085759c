//! What the fuzz targets do with bytes, and the test on stable with every file of the
//! corpus.

use std::time::Duration;

use ontempo_monitor::agentx::{Agent, Source, take_message};
use ontempo_monitor::mib::{MODULES, Objects, Oid, Value};
use ontempo_monitor::prometheus::Page;
use ontempo_monitor::{
    Carrier, Collected, CollectedFlow, ParameterReport, Reservation, Role, SocketReport,
    read_delivery,
};

fn socket(id: u32) -> SocketReport {
    let parameter = ParameterReport {
        parameter: 1,
        asked: Some(80_000),
        agreed: 60_000,
        coerced: false,
        delivered: Some(50_000),
        violated: true,
        begun: 1,
        changed_ms: Some(5_000),
    };
    SocketReport {
        id,
        name: format!("socket {id}"),
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
        rungs: 3,
        rung: 1,
        held: None,
        parameters: vec![parameter],
        violations: Vec::new(),
    }
}

/// What a master answers that agrees (RFC 2741, 6.2.16).
fn agreed(asked: &[u8]) -> Vec<u8> {
    let number = |number: u32| match asked[2] & 0x10 {
        0 => number.to_le_bytes(),
        _ => number.to_be_bytes(),
    };
    let mut answer = vec![1, 18, asked[2] & 0x10, 0];
    answer.extend(number(9));
    answer.extend(&asked[8..16]);
    answer.extend(number(8));
    answer.extend([0; 8]);
    answer
}

/// What does not change; anything can be set.
struct Fixed(Objects);

impl Source for Fixed {
    fn begun(&mut self, _: Duration) {}

    fn objects(&mut self) -> &Objects {
        &self.0
    }

    fn test(&mut self, _: &[(Oid, Value)]) -> Result<(), (u16, u16)> {
        Ok(())
    }

    fn notifications(&mut self) -> Vec<Vec<(Oid, Value)>> {
        Vec::new()
    }

    fn stopped(&self) -> bool {
        false
    }
}

/// Bytes of a master's, to an agent that serves three sockets.
pub(crate) fn agentx(bytes: &[u8]) {
    let mut objects = Objects::default();
    let collected = |id| Collected { index: id, process: 7, user: 0, socket: socket(id) };
    objects.set_sockets(&[1, 2, 40].map(collected), 0);
    let mut source = Fixed(objects);
    let (mut agent, mut asked) = Agent::open().expect("it can be written");
    for _ in MODULES {
        asked = agent.handle(&agreed(&asked), &mut source).expect("agreed").expect("it registers");
    }
    assert_eq!(agent.handle(&agreed(&asked), &mut source).expect("agreed"), None);
    assert!(agent.is_serving());
    let mut received = bytes.to_vec();
    while let Ok(Some(message)) = take_message(&mut received) {
        match agent.handle(&message, &mut source) {
            Ok(Some(answer)) => assert!(answer.len() < 1 << 20, "{} bytes", answer.len()),
            Ok(None) => {}
            Err(_) => return,
        }
    }
}

/// Bytes of a process's document of delivery: what is read of it makes a page of whole lines.
pub(crate) fn delivery(bytes: &[u8]) {
    let Ok(report) = read_delivery(bytes, 7) else { return };
    let flows = report.flows.into_iter().zip(1..);
    let flows: Vec<_> =
        flows.map(|(flow, index)| CollectedFlow { index, process: 7, user: 0, flow }).collect();
    let page = Page::of(&[], &flows, None).expect("it is written to memory");
    for text in page.texts() {
        assert!(text.len() < 3 << 20, "{} bytes", text.len());
        let is_line = |line: &str| line.starts_with("# ") || line.starts_with("ontempo_delivery_");
        assert!(text.lines().all(is_line), "{text}");
        assert!(!text.contains(|one: char| one.is_control() && one != '\n'), "{text}");
    }
}
