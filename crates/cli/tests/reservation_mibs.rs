//! RSVP-MIB (RFC 2206) and INTEGRATED-SERVICES-MIB (RFC 2213) as net-snmp's agent and tools serve
//! them, for a router with a reservation. The modules' text may not be passed on with this, so that
//! names are numbers here. Needs the rights of root; says so where it is skipped.

mod common;
mod reserved;
mod snmp;

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

use common::{Killed, wait_until};
use ontempo_reservation::local::Notice;
use ontempo_testing::require_programs;
use reserved::{BOTTLENECK, Network, can_reserve, is_reserved, until};
use snmp::Master;

/// Below mib-2.
const RSVP: &str = "1.3.6.1.2.1.51";
const INT_SRV: &str = "1.3.6.1.2.1.52";

/// What `ontempo export` serves of a node, by names below mib-2.
struct Walk(BTreeMap<String, String>);

impl Walk {
    fn of(master: &Master) -> Self {
        let mut objects = BTreeMap::new();
        for root in [RSVP, INT_SRV] {
            let printed = master.query("snmpwalk", root);
            // For a tree without objects, the tools print a message with its name.
            let lines = printed.lines().filter(|line| !line.contains("No Such "));
            let lines = lines.filter_map(|line| line.split_once(" = "));
            let below = |name: &str| name.strip_prefix(".1.3.6.1.2.1.").map(str::to_owned);
            objects.extend(
                lines.filter_map(|(name, value)| Some((below(name)?, value.trim().to_owned()))),
            );
        }
        Self(objects)
    }

    /// The columns of a table's only row.
    #[track_caller]
    fn only_row(&self, table: &str) -> BTreeMap<u32, &str> {
        let mut indexes = Vec::new();
        let mut row = BTreeMap::new();
        for (column, index, value) in self.table(table) {
            if !indexes.contains(&index) {
                indexes.push(index);
            }
            row.insert(column, value);
        }
        assert_eq!(indexes.len(), 1, "rows of {table}: {indexes:?}");
        row
    }

    /// Column, index and value of all objects of a table.
    fn table(&self, table: &str) -> impl Iterator<Item = (u32, &str, &str)> {
        let entry = format!("{table}.1.");
        self.0.iter().filter_map(move |(name, value)| {
            let (column, index) = name.strip_prefix(&entry)?.split_once('.')?;
            Some((column.parse().ok()?, index, value.as_str()))
        })
    }

    fn indexes(&self, table: &str, column: u32) -> Vec<&str> {
        self.table(table).filter(|(of, ..)| *of == column).map(|(_, index, _)| index).collect()
    }
}

/// Octets as the tools print them.
fn octets(octets: &[u8]) -> String {
    let digits: Vec<String> = octets.iter().map(|octet| format!("{octet:02X}")).collect();
    format!("\"{} \"", digits.join(" "))
}

/// `ontempo export` at a node, which asks the node's daemon.
fn export(network: &Network, node: &str, master: &Master) -> Killed {
    let words = ["export", &master.to(), "--folder", "nowhere", "--rsvp", &network.socket(node)];
    let mut command = network.ontempo(node, &words);
    command.current_dir(&master.place.0).stdout(Stdio::null());
    let exporting = Killed(command.spawn().expect("ip is there"));
    let bad_packets = format!(".{RSVP}.2.1.0");
    wait_until("the sub-agent", || master.query("snmpwalk", RSVP).contains(&bad_packets));
    exporting
}

/// The number of an interface at a node.
fn index_of(network: &Network, node: &str, interface: &str) -> String {
    network.exec(node, &format!("cat /sys/class/net/{interface}/ifindex")).trim().to_owned()
}

fn can_ask() -> bool {
    can_reserve() && require_programs(&["snmpd", "snmpwalk", "snmpbulkwalk"])
}

/// RSVP-MIB of the router before the receiver's, whose interfaces have these numbers.
fn check_what_rsvp_knows(walk: &Walk, from: &str, by: &str) {
    let (h1, h2) = (octets(&[10, 0, 0, 1]), octets(&[10, 0, 3, 2]));
    let (source, destination) = (octets(&4000u16.to_be_bytes()), octets(&5004u16.to_be_bytes()));
    let session = walk.only_row("51.1.1");
    let expected = ["1", &h2, "32", "17", &destination, "1", "1", "1"];
    assert_eq!(session.values().copied().collect::<Vec<_>>(), expected);
    let path = walk.only_row("51.1.2");
    assert_eq!((path[&4], path[&9], path[&11]), (&*h1, &*source, &*h1), "{path:?}");
    assert_eq!((path[&13], path[&14], path[&15], path[&16]), (from, "500000", "0", "4000"));
    // R = 500 ms; the previous IP hop is an RSVP hop; no break on the path.
    assert_eq!((path[&19], path[&20], path[&23]), ("500", "1", "2"));
    assert_eq!((path[&28], path[&38], path[&44]), ("1", "1", "1"));
    assert_ne!(path[&21], "0:0:00:00.00", "the time of the last change");
    let index = walk.indexes("51.1.2", 2)[0];
    assert_eq!(walk.indexes("51.1.3", 1), [format!("{index}.{by}")]);
    let r2 = octets(&[10, 0, 1, 2]);
    let asked = walk.only_row("51.1.4");
    assert_eq!((asked[&4], asked[&10], asked[&12]), (&*h1, &*r2, by), "{asked:?}");
    assert_eq!((asked[&13], asked[&14], asked[&23], asked[&24]), ("5", "500000", "2", "1"));
    let forwarded = walk.only_row("51.1.5");
    assert_eq!((forwarded[&10], forwarded[&12], forwarded[&14]), (&*h1, from, "500000"));
    let interfaces = walk.indexes("51.1.6", 11);
    assert_eq!(interfaces.len(), 3, "{interfaces:?}");
    let mut neighbours = vec![format!("{from}.4.10.0.0.1"), format!("{by}.4.10.0.1.2")];
    neighbours.sort();
    assert_eq!(walk.indexes("51.1.7", 2), neighbours);
    assert_eq!(walk.0["51.2.1.0"], "0", "bad packets");
}

/// INTEGRATED-SERVICES-MIB of it.
fn check_what_is_enforced(walk: &Walk, by: &str) {
    let (h1, h2) = (octets(&[10, 0, 0, 1]), octets(&[10, 0, 3, 2]));
    let allocated = |column: u32| walk.0[&format!("52.1.1.1.{column}.{by}")].as_str();
    let expected = ["507000", "1350000", "4056", "1", "0", "1"];
    assert_eq!([1, 2, 3, 4, 5, 6].map(allocated), expected);
    let flow = walk.only_row("52.1.2");
    assert_eq!((flow[&3], flow[&4], flow[&5]), ("2", &*h2, &*h1), "{flow:?}");
    assert_eq!((flow[&12], flow[&14], flow[&17]), (by, "507000", "4097"), "class 1:1001");
    assert_eq!((flow[&20], flow[&21], flow[&22], flow[&23]), ("0", "0", "2", "5"));
}

fn check_what_goes_beyond(network: &Network, master: &Master) {
    // What a flow sends beyond its reservation borrows.
    let (sent, _) = network.flow((4000, 5004), 1000, Duration::from_secs(2));
    let beyond = || {
        let walk = Walk::of(master);
        let flow = walk.only_row("52.1.2");
        let number = |column: u32| flow[&column].parse::<u64>().expect("a number");
        let (best_effort, policed) = (number(20), number(21));
        assert!(policed >= best_effort, "{flow:?}");
        best_effort
    };
    wait_until("packets beyond the reservation", || beyond() > 0);
    let beyond = beyond();
    eprintln!("{beyond} of {sent} packets at 1 Mbit/s went beyond a reservation of 500 kbit/s");
    assert!((sent / 4..sent).contains(&beyond), "{beyond} of {sent}");
}

#[test]
fn a_router_serves_its_reservations() {
    if !can_ask() {
        return;
    }
    let network = Network::running("mibs", false);
    // Before the reservation, so that its times are not 0, which is "before the agent started".
    let master = Master::new("mibs-snmp");
    let _agent = master.agent();
    let _exporting = export(&network, "r1", &master);
    let (mut sender, mut receiver) = network.reserved(500);
    until(&mut receiver, |event| matches!(event, Notice::Confirmed { .. }));
    let [from, by] = ["l0", BOTTLENECK].map(|name| index_of(&network, "r1", name));

    wait_until("the flow", || Walk::of(&master).table("52.1.2").next().is_some());
    let walk = Walk::of(&master);
    check_what_rsvp_knows(&walk, &from, &by);
    check_what_is_enforced(&walk, &by);
    check_what_goes_beyond(&network, &master);
    let index = walk.indexes("51.1.2", 2)[0];

    // GetBulk finds what GetNext finds.
    for root in [RSVP, INT_SRV] {
        assert_eq!(master.query("snmpbulkwalk", root), master.query("snmpwalk", root));
    }
    drop(receiver);
    until(&mut sender, |event| !is_reserved(event));
    wait_until("the end of the flow", || {
        let walk = Walk::of(&master);
        ["51.1.4", "51.1.5", "52.1.2"].iter().all(|table| walk.table(table).next().is_none())
    });
    assert_eq!(Walk::of(&master).indexes("51.1.2", 2), [index], "the sender keeps its number");
    drop(sender);
    network.end();
    wait_until("the end of the daemon", || Walk::of(&master).0.is_empty());
}

#[test]
fn a_host_serves_sessions_of_ipv6_and_its_own_requests() {
    if !can_ask() {
        return;
    }
    let network = Network::running("mibs6", true);
    let (_sender, mut receiver) = network.reserved(500);
    until(&mut receiver, |event| matches!(event, Notice::Confirmed { .. }));
    let master = Master::new("mibs6-snmp");
    let _agent = master.agent();
    let _exporting = export(&network, "h2", &master);
    let walk = Walk::of(&master);
    let session = walk.only_row("51.1.1");
    assert_eq!((session[&2], session[&4]), ("2", "128"), "{session:?}");
    // The next hop is the receiver itself, which no interface leads to.
    let asked = walk.only_row("51.1.4");
    assert_eq!(asked[&10], session[&3]);
    assert_eq!(asked.get(&12), None);
    let by = index_of(&network, "h2", "l3");
    let r2 = [0xfd, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    assert_eq!(walk.only_row("51.1.5")[&10], octets(&r2).replace("\n", ""));
    let index: Vec<String> = r2.iter().map(ToString::to_string).collect();
    assert_eq!(walk.indexes("51.1.7", 2), [format!("{by}.16.{}", index.join("."))]);
    assert_eq!(walk.table("52.1.2").count(), 0, "nothing leaves this host");
}
