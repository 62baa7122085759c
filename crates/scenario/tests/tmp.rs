#[test]
fn t() {
    let s = ontempo_scenario::load("tests/scenarios/many.toml").unwrap();
    println!("{}", serde_json::to_string(&s).unwrap());
    let l = s.layout(1).unwrap();
    println!("{:?} {:?}", l.links[..4].to_vec(), l.flows[0]);
    println!("{}", serde_json::to_string_pretty(&schemars::schema_for!(ontempo_scenario::model::Scenario)).unwrap());
    let t = toml::to_string(&s).unwrap(); println!("{t}");
}
