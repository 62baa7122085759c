//! net-snmp's agent and tools in a folder of their own.

// Each test program uses a part of this.
#![allow(dead_code)]

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::common::{Killed, Place, free_port};

/// The repository's root.
pub(crate) fn house() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The project's own module.
pub(crate) fn own_module() -> PathBuf {
    house().join("mibs/ONTEMPO-QOS-MIB.txt")
}

/// The folder of the standard MIB modules, if installed.
pub(crate) fn base_modules() -> Option<PathBuf> {
    let fetched = house().join("target/base-mibs");
    let bases = ["/usr/share/snmp/mibs", "/usr/share/mibs/ietf", "/var/lib/mibs/ietf"];
    let mut folders = [fetched].into_iter().chain(bases.map(PathBuf::from));
    folders
        .find(|folder| ["SNMPv2-TC", "SNMPv2-TC.txt"].iter().any(|name| folder.join(name).exists()))
}

/// Where net-snmp's tools find the project's module and those that it imports.
pub(crate) fn modules() -> Option<String> {
    let base = base_modules()?;
    Some(format!("{}:{}", base.display(), house().join("mibs").display()))
}

/// `snmpd` and `snmptrapd` in a place, on ports of their own.
pub(crate) struct Master {
    pub(crate) place: Place,
    port: u16,
    traps: u16,
}

impl Master {
    pub(crate) fn new(test: &str) -> Self {
        let master = Self { place: Place::new(test, ""), port: free_port(), traps: free_port() };
        let (folder, port, traps) = (master.place.0.display(), master.port, master.traps);
        let agent = format!(
            "agentaddress udp:127.0.0.1:{port}\nrocommunity public\nrwcommunity private\nmaster agentx\n\
             agentXSocket {folder}/master\ntrap2sink 127.0.0.1:{traps} public\n"
        );
        fs::write(master.place.path("snmpd.conf"), agent).expect("a configuration");
        let traps = "disableAuthorization yes\n";
        fs::write(master.place.path("snmptrapd.conf"), traps).expect("a configuration");
        master
    }

    fn program(&self, name: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(name);
        command
            .args(arguments)
            .current_dir(&self.place.0)
            // No persistent state, no MIB modules.
            .env("SNMP_PERSISTENT_DIR", self.place.path("kept"))
            .env("MIBS", "");
        command
    }

    fn start(&self, name: &str, arguments: &[&str]) -> Killed {
        let log = fs::File::create(self.place.path(&format!("{name}.log"))).expect("a log");
        let errors = log.try_clone().expect("a log");
        let mut command = self.program(name, arguments);
        Killed(command.stdout(log).stderr(errors).spawn().expect("the program starts"))
    }

    pub(crate) fn agent(&self) -> Killed {
        self.start("snmpd", &["-f", "-Lo", "-C", "-c", "snmpd.conf"])
    }

    /// `snmptrapd`, which writes down what it hears.
    pub(crate) fn traps(&self) -> Killed {
        let at = format!("udp:127.0.0.1:{}", self.traps);
        self.start("snmptrapd", &["-f", "-Lo", "-On", "-C", "-c", "snmptrapd.conf", &at])
    }

    /// The option of `ontempo export` for this `snmpd`.
    pub(crate) fn to(&self) -> String {
        format!("--agentx={}", self.place.path("master").display())
    }

    pub(crate) fn log(&self, name: &str) -> String {
        fs::read_to_string(self.place.path(&format!("{name}.log"))).unwrap_or_default()
    }

    /// Where the agent listens.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// `snmpset` of a whole number by this community: what it prints on either output.
    pub(crate) fn set(&self, community: &str, name: &str, value: &str) -> String {
        let to = self.address();
        let words =
            ["-v2c", "-c", community, "-On", "-OQ", "-t", "2", "-r", "0", &to, name, "i", value];
        let output = self.program("snmpset", &words).output().expect("the tool starts");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    }

    pub(crate) fn query(&self, tool: &str, name: &str) -> String {
        let to = self.address();
        let arguments =
            ["-v2c", "-c", "public", "-On", "-OQ", "-t", "1", "-r", "0", to.as_str(), name];
        let output = self.program(tool, &arguments).output().expect("the tool starts");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}
