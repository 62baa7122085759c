//! scratch
fn main() {
    let s =
        ontempo_scenario::load(std::path::Path::new(&std::env::args().nth(1).unwrap())).unwrap();
    let r = ontempo_simulator::Simulation::new(&s, 1).unwrap().run(&Default::default()).unwrap();
    println!("{}", r.work.events);
}
