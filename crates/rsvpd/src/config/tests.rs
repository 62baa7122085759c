use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::process::Command;

use ontempo_reservation::htb::Serves;

use super::*;

/// Reads the configuration of an interface with these lines; files `a`, `b` hold secrets.
fn read(test: &str, lines: &str) -> Result<Config, String> {
    let name = format!("ontempo-config-{test}-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    fs::create_dir_all(&folder).unwrap();
    for (name, secret) in [("a", "sixteen bytes of a"), ("b", "sixteen bytes of b")] {
        fs::write(folder.join(name), secret).unwrap();
        fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o600)).unwrap();
    }
    let text = format!("[interfaces.eth1]\nrate = \"1 Mbit/s\"\n{lines}");
    fs::write(folder.join("rsvpd.toml"), text).unwrap();
    let config = Config::read(&folder.join("rsvpd.toml"));
    fs::remove_dir_all(folder).unwrap();
    config.map_err(|error| error.to_string())
}

#[test]
fn neighbours_have_keys_of_their_own_for_both_directions_or_for_each() {
    let lines = "key = { id = 1, secret-file = \"a\" }\n\
                 [interfaces.eth1.neighbours.\"10.1.0.2\"]\n\
                 key = { id = 2, secret-file = \"b\" }\n\
                 [interfaces.eth1.neighbours.\"fe80::2\"]\n\
                 send = { id = 3, secret-file = \"a\" }\n\
                 receive = { id = 3, secret-file = \"b\" }\n";
    let config = read("keys", lines).unwrap();
    let interface = &config.interfaces["eth1"];
    assert!(interface.is_authenticated());
    let mut guard = interface.guard(1, 8).unwrap();
    let own: IpAddr = "10.1.0.1".parse().unwrap();
    for (to, number) in [(None, 1), (Some("10.1.0.2"), 2), (Some("10.1.0.9"), 1)] {
        let to = to.map(|to| to.parse().unwrap());
        let sealed = guard.seal(own, to, &[0x10, 25, 0, 0, 64, 0, 0, 8]).unwrap();
        // The last two bytes of the Key Identifier.
        assert_eq!(sealed[18..20], [0, number], "{to:?}");
    }
    let alone = "[interfaces.eth1.neighbours.\"10.1.0.2\"]\n\
                 key = { id = 2, secret-file = \"b\" }\n";
    let config = read("alone", alone).unwrap();
    assert!(config.interfaces["eth1"].is_authenticated());
}

#[test]
fn aggregates_have_code_points_of_their_own_and_other_ones_are_named() {
    let of = |lines: &str| read("aggregates", &format!("aggregates = [{lines}]\n"));
    let config = of("{ dscp = \"AF41\", up-to = \"1 Mbit/s\" }, { dscp = \"ef\", service = \
                     \"guaranteed\" }, { dscp = \"CS5\" }, { dscp = \"12\" }")
    .unwrap();
    let all = config.interfaces["eth1"].read_aggregates().unwrap();
    let dscps: Vec<u8> = all.iter().map(|one| one.dscp).collect();
    assert_eq!(dscps, [34, 46, 40, 12]);
    assert_eq!(all[0].up_to, Some(Rate::from_bits_per_sec(1_000_000)));
    assert_eq!((all[0].serves, all[1].serves), (Serves::Both, Serves::Guaranteed));
    assert!(config.shown().contains("enforced, with 4 aggregates"), "{}", config.shown());
    for (lines, words) in [
        (
            "{ dscp = \"AF44\" }",
            "interfaces.eth1.aggregates[0].dscp: \"AF44\" must be a code point",
        ),
        ("{ dscp = \"CS6\" }", "not 0, CS6 or CS7"),
        ("{ dscp = \"0\" }", "not 0, CS6 or CS7"),
        ("{ dscp = \"64\" }", "must be a code point"),
        ("{ dscp = \"éé\" }", "must be a code point"),
        (
            "{ dscp = \"EF\" }, { dscp = \"46\" }",
            "interfaces.eth1.aggregates: two have the DSCP 46",
        ),
        // Of these the line is shown.
        ("{ dscp = \"EF\", up-to = \"5\" }", "up-to"),
        ("{ dscp = \"EF\", service = \"best\" }", "\"guaranteed\" or \"controlled-load\""),
    ] {
        let error = of(lines).expect_err("it is wrong");
        assert!(error.contains(words), "{words}: {error}");
    }
    let error = read("aggregates", "enforce = false\naggregates = [{ dscp = \"EF\" }]\n");
    assert!(error.expect_err("it has no classes").contains(".aggregates: "));
}

#[test]
fn wrong_keys_of_neighbours_are_named() {
    let of = |lines: &str| format!("[interfaces.eth1.neighbours.\"10.1.0.2\"]\n{lines}\n");
    let key = "key = { id = 1, secret-file = \"a\" }";
    for (lines, words) in [
        (of("send = { id = 3, secret-file = \"a\" }"), "give key, or send and receive"),
        (of(&format!("{key}\nsend = {{ id = 3, secret-file = \"a\" }}")), "give key, or send"),
        (of("key = { id = 1, secret-file = \"none\" }"), "none: "),
        (format!("{key}\n{}", of(key)), "key has the same id"),
        ("[interfaces.eth1.neighbours.r2]\n".to_owned(), "neighbours"),
    ] {
        let error = read("wrong", &lines).expect_err("it is wrong");
        assert!(error.contains(words) && error.contains("eth1"), "{words}: {error}");
    }
}

#[test]
fn a_secret_that_another_user_knows_or_chooses_is_no_key() {
    let folder = std::env::temp_dir().join(format!("ontempo-secrets-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let (secret, config) = (folder.join("a"), folder.join("rsvpd.toml"));
    fs::write(&secret, "sixteen bytes of a").unwrap();
    fs::write(
        &config,
        "[interfaces.eth1]\nrate = \"1 Mbit/s\"\nkey = { id = 1, secret-file = \"a\" }\n",
    )
    .unwrap();
    let mode = |mode| fs::set_permissions(&secret, fs::Permissions::from_mode(mode)).unwrap();
    let refused = |why: &str| {
        let error = Config::read(&config).expect_err(why).to_string();
        assert!(error.contains("interfaces.eth1") && error.contains(why), "{error}");
    };
    mode(0o640);
    Config::read(&config).unwrap();
    mode(0o644);
    refused("other users have access to it (mode 644)");
    mode(0o660);
    refused("other users may write it (mode 660)");
    mode(0o600);
    if ontempo_testing::require_root() {
        chown(&secret, Some(65_534), None).unwrap();
        refused("user 65534 owns it");
        // Nor is a link of another user followed, in a folder that others can write to.
        chown(&secret, Some(0), None).unwrap();
        fs::rename(&secret, folder.join("b")).unwrap();
        symlink("b", &secret).unwrap();
        std::os::unix::fs::lchown(&secret, Some(65_534), None).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o1777)).unwrap();
        refused("the link belongs to user 65534");
    }
    fs::remove_dir_all(folder).unwrap();
}

/// The whole file is this text.
fn read_whole(test: &str, text: &str) -> Result<Config, String> {
    let name = format!("ontempo-config-{test}-{}.toml", std::process::id());
    let path = std::env::temp_dir().join(name);
    fs::write(&path, text).unwrap();
    let config = Config::read(&path).map_err(|error| error.to_string());
    fs::remove_file(&path).unwrap();
    config
}

#[test]
fn what_is_wrong_is_told_with_what_would_be_right() {
    let eth1 = "[interfaces.eth1]\nrate = \"1 Mbit/s\"\n";
    let neighbour = |address: &str| {
        format!(
            "{eth1}[interfaces.eth1.neighbours.\"{address}\"]\n\
             key = {{ id = 1, secret-file = \"a\" }}\n"
        )
    };
    for (text, words) in [
        (format!("[limits]\nsessions = 0\n{eth1}"), "a whole number from 1 to 16777216"),
        (format!("[limits]\nsessions = -1\n{eth1}"), "a whole number from 1 to 16777216"),
        (format!("[limits]\nstates = 4294967296\n{eth1}"), "a whole number from 1 to 16777216"),
        (format!("[limits]\nneighbours = \"256\"\n{eth1}"), "a whole number from 1 to 16777216"),
        (format!("{eth1}key = \"x\"\n"), "a table such as { id = 1, secret-file"),
        (format!("{eth1}aggregates = [\"EF\"]\n"), "a table such as { dscp = \"EF\" }"),
        (neighbour("host"), "\"host\" must be the address of a neighbour"),
        (neighbour("224.0.0.1"), "\"224.0.0.1\" must be the address of a neighbour"),
        (neighbour("0.0.0.0"), "\"0.0.0.0\" must be the address of a neighbour"),
        (format!("socket = \"\"\n{eth1}"), "socket: \"\" must be a path of 1 to 107 bytes"),
        (format!("socket = \"/{}\"\n{eth1}", "a".repeat(107)), "a path of 1 to 107 bytes"),
        (
            "[interfaces.eth1]\nrate = \"8 bit/s\"\n".to_owned(),
            "eth1.rate: of 8 bit/s nothing is left",
        ),
        (
            format!(
                "{eth1}aggregates = [{}]\n[interfaces.eth2]\nrate = \"32 kbit/s\"\n",
                "{ dscp = \"EF\" }"
            ),
            "eth2.rate: of 32 kbit/s",
        ),
        ("[interfaces.lo]\nrate = \"1 Mbit/s\"\n".to_owned(), "the loopback has no neighbours"),
    ] {
        let error = read_whole("wrong", &text).expect_err(&text);
        assert!(error.contains(words), "{words}: {error}");
    }
}

#[test]
fn a_value_of_the_wrong_kind_is_reported_with_file_key_and_what_would_be_right() {
    let of_eth1 = |line: &str| format!("[interfaces.eth1]\nrate = \"1 Mbit/s\"\n{line}\n");
    let words = r#"expected "error", "warning", "notice" or "info""#;
    for (line, key, right) in [
        ("log = 3", "log", words),
        ("log = \"loud\"", "log", words),
        ("mode = 660", "mode", "octal digits in quotes, such as \"0660\""),
        ("group = 5", "group", "the name of a group"),
        ("socket = 3", "socket", "a path, such as"),
        ("trust-network = \"yes\"", "trust-network", "true or false"),
        ("limits = 3", "limits", "a table such as { sessions = 20000 }"),
        ("limits = { sessions = \"3\" }", "limits.sessions", "a whole number from 1 to"),
        ("aggregates = {}", "aggregates", "expected one of `refresh`"),
        ("refresh = 3", "refresh", "\"3 ms\""),
    ] {
        let error = read_whole("kinds", &format!("{line}\n{}", of_eth1(""))).expect_err(line);
        let last = error.lines().last().unwrap_or_default();
        assert!(last.starts_with(&format!("{key}: ")) && last.contains(right), "{line}: {error}");
        assert!(error.contains("ontempo-config-kinds") && error.contains("line 1"), "{error}");
    }
    for (line, key, right) in [
        ("aggregates = {}", "aggregates", "a list of tables, such as [{ dscp = \"EF\" }]"),
        ("aggregates = [3]", "aggregates[0]", "a table such as { dscp = \"EF\" }"),
        ("aggregates = [{ dscp = 46 }]", "aggregates[0].dscp", "\"AF41\", \"EF\" or \"46\""),
        ("guaranteed = 1", "guaranteed", "true or false"),
        ("overhead = 22", "overhead", "\"pppoe\" or a number of bytes, such as \"22 bytes\""),
        ("overhead = \"x\"", "overhead", "\"pppoe\" or a number of bytes"),
        ("speed = 1", "speed", "expected one of `rate`"),
        ("neighbours = 3", "neighbours", "a table for each neighbour"),
        ("key = { id = \"a\", secret-file = \"a\" }", "key.id", "a whole number from 0 to 65535"),
        ("key = { id = -1, secret-file = \"a\" }", "key.id", "a whole number from 0 to 65535"),
        ("key = { id = 1, secret-file = 3 }", "key.secret-file", "\"eth1.key\""),
        ("key = { id = 1, algorithm = \"md5\" }", "key.algorithm", "or \"hmac-md5\""),
        ("key = { id = 1 }", "key", "missing field `secret-file`"),
        ("key = { identifiers = { send = -1 } }", "key.identifiers.send", "48 bits"),
    ] {
        let error = read_whole("kinds", &of_eth1(line)).expect_err(line);
        let last = error.lines().last().unwrap_or_default();
        let key = format!("interfaces.eth1.{key}: ");
        assert!(last.starts_with(&key) && last.contains(right), "{line}: {error}");
    }
    for (text, key, right) in [
        ("interfaces = 3\n", "interfaces: ", "a table for each interface"),
        ("[interfaces]\neth1 = 3\n", "interfaces.eth1: ", "a table such as { rate = "),
        ("[interfaces.\"a b\"]\nrate = 3\n", "interfaces.\"a b\".rate: ", "\"3 Mbit/s\""),
        ("[interfaces.eth1]\nlatency = \"1 ms\"\n", "interfaces.eth1: ", "missing field `rate`"),
    ] {
        let error = read_whole("kinds", text).expect_err(text);
        let last = error.lines().last().unwrap_or_default();
        assert!(last.starts_with(key) && last.contains(right), "{text}: {error}");
    }
}

#[test]
fn what_cannot_change_is_named_with_the_file_and_alone() {
    let of = |lines: &str| {
        read_whole("change", &format!("{lines}[interfaces.eth1]\nrate = \"1 Mbit/s\"\n")).unwrap()
    };
    let before = of("group = \"video\"\n");
    let refused = |new| before.check_change(&new).expect_err("it cannot change");
    let mode = refused(of("group = \"video\"\nmode = \"0666\"\n"));
    assert!(mode.contains("ontempo-config-change") && mode.contains(".toml: mode: "), "{mode}");
    assert!(refused(of("")).contains(".toml: group: "));
}

#[test]
fn a_secret_in_what_is_no_file_is_refused_and_not_waited_for() {
    let folder = std::env::temp_dir().join(format!("ontempo-pipe-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let pipe = folder.join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for path in [&pipe, &folder] {
        let lines = format!("key = {{ id = 1, secret-file = {path:?} }}");
        let text = format!("[interfaces.eth1]\nrate = \"1 Mbit/s\"\n{lines}\n");
        let error = read_whole("pipe", &text).expect_err("it is no file");
        assert!(error.contains("key: ") && error.contains("no regular file"), "{error}");
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_file_without_an_end_is_not_read_and_a_daemon_that_runs_waits_for_no_pipe() {
    let error = Config::read(Path::new("/dev/zero")).expect_err("endless").to_string();
    assert_eq!(error, "/dev/zero: it has more than 4194304 bytes");
    let pipe = std::env::temp_dir().join(format!("ontempo-again-{}", std::process::id()));
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let error = Config::read_again(&pipe).expect_err("no file").to_string();
    assert!(error.ends_with(": it is no regular file"), "{error}");
    // At the start, what comes by it is the configuration.
    let text = "[interfaces.eth1]\nrate = \"1 Mbit/s\"\n";
    let writer = std::thread::spawn({
        let pipe = pipe.clone();
        move || fs::write(pipe, text)
    });
    assert!(Config::read(&pipe).unwrap().interfaces.contains_key("eth1"));
    writer.join().unwrap().unwrap();
    fs::remove_file(pipe).unwrap();
}

#[test]
fn a_group_that_this_host_does_not_have_is_told_before_the_start() {
    let text = "group = \"no-such-group\"\n[interfaces.eth1]\nrate = \"1 Mbit/s\"\n";
    let config = read_whole("group", text).unwrap();
    let error = config.check_group().expect_err("there is none").to_string();
    assert!(error.contains(".toml: group: this host has no group"), "{error}");
}
