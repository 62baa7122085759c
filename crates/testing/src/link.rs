//! Two network namespaces with a link between them, for benchmarks as root with iproute2.

use std::process::{self, Command};

/// Two namespaces with a pair of virtual Ethernet interfaces between them; they end with this.
#[derive(Debug)]
pub struct Link {
    /// The namespaces' names, below `/run/netns`.
    pub spaces: [String; 2],
}

impl Link {
    /// The addresses of both ends.
    pub const ADDRESSES: [&str; 2] = ["10.83.0.1", "10.83.0.2"];

    /// A link of so many Mbit/s each way, or of what the processor bears.
    ///
    /// # Panics
    ///
    /// Without root or iproute2.
    #[must_use]
    pub fn new(mbit: Option<u64>) -> Self {
        let name = |end| format!("ontempo-{end}-{}", process::id());
        let link = Self { spaces: ["near", "far"].map(name) };
        let [near, far] = &link.spaces;
        for space in [near, far] {
            ip(&format!("netns add {space}"));
            ip(&format!("-n {space} link set lo up"));
        }
        ip(&format!("-n {near} link add l0 type veth peer name l0 netns {far}"));
        for (space, address) in link.spaces.iter().zip(Self::ADDRESSES) {
            ip(&format!("-n {space} addr add {address}/24 dev l0"));
            ip(&format!("-n {space} link set l0 up"));
            if let Some(mbit) = mbit {
                ip(&format!(
                    "netns exec {space} tc qdisc add dev l0 root tbf rate {mbit}mbit burst 256kb \
                     latency 50ms"
                ));
            }
        }
        link
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        for space in &self.spaces {
            let _ = Command::new("ip").args(["netns", "del", space]).status();
        }
    }
}

fn ip(words: &str) {
    let status = Command::new("ip").args(words.split_whitespace()).status().expect("iproute2");
    assert!(status.success(), "ip {words}: {status}; this needs root");
}
