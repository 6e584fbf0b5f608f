use super::*;

fn with_bridge() -> Config {
    let mut config = Config::default();
    config.bridge.insert("br0".to_owned(), BridgeConfig::default());
    config
}

#[test]
fn a_flag_sets_kind_file_and_options_of_a_port() {
    let mut config = with_bridge();
    config.add_port("br0:p0=pcap:/tmp/a:b.pcap,loop,number=7").unwrap();
    config.add_port("br0:p1=null").unwrap();
    config.check().unwrap();
    let port = &config.bridge["br0"].port["p0"];
    assert_eq!(port.file.as_deref(), Some(Path::new("/tmp/a:b.pcap")));
    assert!(port.repeats);
    assert_eq!(port.number, Some(7));
}

#[test]
fn the_sockets_and_queues_of_ports_are_parsed_and_checked() {
    let ring = PortConfig::parse("ring:/tmp/a,client").unwrap();
    assert_eq!((ring.path.as_deref(), ring.role), (Some(Path::new("/tmp/a")), Some(Role::Client)));
    let xdp = PortConfig::parse("xdp:eth1,queue=2,copy,rate=1gbit,queue=fq_codel").unwrap();
    assert_eq!((xdp.receive_queue, xdp.copy_mode), (Some(2), Some(CopyMode::Copy)));
    assert!(xdp.queue.is_some() && xdp.check().is_ok());
    PortConfig::parse("vhost-user:/tmp/v,queues=4").unwrap().check().unwrap();
    for (text, expected) in [
        ("ring", "needs the path of a socket"),
        ("xdp:eth1,queues=2", "has one queue"),
        ("packet:eth1,copy", "for xdp ports"),
        ("null,server", "for ring and vhost-user ports"),
    ] {
        let problem = PortConfig::parse(text).unwrap().check().unwrap_err();
        assert!(problem.contains(expected), "{text}: {problem}");
    }
}

#[test]
fn a_cpu_mask_names_a_cpu_for_each_set_bit() {
    assert_eq!(parse_cpu_mask("0x6").unwrap(), [1, 2]);
    assert!(parse_cpu_mask("0").is_err() && parse_cpu_mask("x").is_err());
}

#[test]
fn the_error_of_a_malformed_port_flag_explains_the_fault() {
    let cases = [
        ("br0", "write BRIDGE:PORT=KIND"),
        ("br1:p0=null", "there is no bridge br1; the bridges are: br0"),
        ("br0:p0=pcapp:x", "(did you mean `pcap`?)"),
        ("br0:p0=null,lop", "unknown option \"lop\""),
        ("br0:p0=null:x", "takes no argument: write null alone"),
        ("br0:p0=null,number=x", "such as number=1"),
        ("br0:p0=null,queues=x", "such as queues=2"),
    ];
    for (flag, expected) in cases {
        let error = with_bridge().add_port(flag).unwrap_err().to_string();
        assert!(error.contains(expected), "{flag}: {error}");
    }
    let error = Config::default().add_port("br0:p0=null").unwrap_err().to_string();
    assert!(error.contains("there is no bridge br0: add it by --bridge br0"), "{error}");
    let mut twice = with_bridge();
    twice.add_port("br0:p0=null").unwrap();
    let error = twice.add_port("br0:p0=null").unwrap_err().to_string();
    assert!(error.contains("name another"), "{error}");
}

#[test]
fn impossible_switch_settings_are_refused_with_advice() {
    let problem = |change: fn(&mut Config)| {
        let mut config = with_bridge();
        config.add_port("br0:p0=null").unwrap();
        config.add_port("br0:p1=null").unwrap();
        change(&mut config);
        config.check().unwrap_err().to_string()
    };
    let numbers = problem(|config| {
        config.bridge["br0"].port.values_mut().for_each(|port| port.number = Some(7));
    });
    assert!(numbers.contains("change one, or leave it out"), "{numbers}");
    let cpus = problem(|config| config.pmd_cpus = Some(vec![1, 1]));
    assert!(cpus.contains("name it once"), "{cpus}");
    let id = problem(|config| config.bridge["br0"].datapath_id = Some("1".to_owned()));
    assert!(id.contains("for example 0000000000000001"), "{id}");
}

#[test]
fn the_error_of_an_unknown_key_names_its_line() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("weir.toml");
    std::fs::write(&path, "pmd-cpus = [1]\nbrige = 1\n").unwrap();
    let error = Config::read(&path).unwrap_err().to_string();
    let expected = "weir.toml:2: unknown key `brige` (did you mean `bridge`?)";
    assert!(error.ends_with(expected), "{error}");
}
