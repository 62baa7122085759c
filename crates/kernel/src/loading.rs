//! Loads the BPF program with libbpf.

use crate::{KernelError, Name, Settings};

/// Loads PERT as the congestion control `name`. It stays until [`unload`](crate::unload) or a
/// reboot. Returns true if the BPF file system had to be mounted.
///
/// # Errors
///
/// If rights, kernel or this build are insufficient, or the name is taken.
#[cfg(bpf_object)]
pub fn load(name: &Name, settings: &Settings) -> Result<bool, KernelError> {
    use crate::requirements;

    requirements::check()?;
    let mounted = requirements::mount_bpffs()?;
    program::load(name, settings)?;
    Ok(mounted)
}

/// Returns what this build lacks to load PERT.
///
/// # Errors
///
/// Always.
#[cfg(not(bpf_object))]
pub fn load(_: &Name, _: &Settings) -> Result<bool, KernelError> {
    let has_libbpf = cfg!(feature = "bpf");
    Err(if has_libbpf { KernelError::BuiltWithoutClang } else { KernelError::BuiltWithoutLibbpf })
}

#[cfg(bpf_object)]
mod program {
    use std::os::fd::AsFd;
    use std::sync::Mutex;

    use libbpf_rs::{Link, MapCore, Object, ObjectBuilder, OpenObject, PrintLevel, set_print};
    use rustix::time::{ClockId, DynamicClockId, clock_gettime, clock_gettime_dynamic};

    use super::{KernelError, Name, Settings};
    use crate::loaded::Pins;
    use crate::machine;

    /// Compiled by build.rs from `bpf/pert.bpf.c`.
    static PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/pert.bpf.o"));

    /// libbpf's messages, for the error of a refusal.
    static COMPLAINTS: Mutex<String> = Mutex::new(String::new());

    fn record_message(_: PrintLevel, text: String) {
        if let Ok(mut complaints) = COMPLAINTS.lock() {
            complaints.push_str(&text);
        }
    }

    pub(super) fn load(name: &Name, settings: &Settings) -> Result<(), KernelError> {
        let pins = Pins::of(name);
        if !pins.make()? {
            return Err(KernelError::AlreadyLoaded(name.clone()));
        }
        let loaded = if machine::lists(name)? {
            Err(KernelError::NameTaken(name.clone()))
        } else {
            attach(name, settings, &pins)
        };
        if loaded.is_err() {
            // Report the first error.
            let _ = pins.remove();
        }
        loaded
    }

    fn attach(name: &Name, settings: &Settings, pins: &Pins) -> Result<(), KernelError> {
        let before = set_print(Some((PrintLevel::Warn, record_message)));
        let attached = (|| {
            let mut object = open(name, settings)?
                .load()
                .map_err(refused("load PERT's BPF program into the kernel"))?;
            let mut sockets = show_sockets(&object)?;
            sockets.pin(pins.sockets()).map_err(refused("pin the file of its sockets"))?;
            let mut maps = object.maps_mut();
            let mut operations = maps
                .find(|map| map.name() == "congestion_control")
                .ok_or_else(|| lacks("its operations"))?;
            let mut link = operations
                .attach_struct_ops()
                .map_err(refused("register the congestion control"))?;
            link.pin(pins.link()).map_err(refused("pin the congestion control"))
        })();
        set_print(before);
        attached
    }

    /// The program with its name and settings set.
    fn open(name: &Name, settings: &Settings) -> Result<OpenObject, KernelError> {
        let mut object = ObjectBuilder::default()
            .open_memory(PROGRAM)
            .map_err(refused("read PERT's BPF program"))?;
        let numbers: Vec<u8> =
            settings.fixed_point().iter().flat_map(|number| number.to_ne_bytes()).collect();
        // The name with its terminating zero: the first member of the operations in `bpf/kernel.h`.
        let mut named = [0; Name::LENGTH + 1];
        named[..name.as_str().len()].copy_from_slice(name.as_str().as_bytes());
        write(&mut object, ".rodata.parameters", &numbers)?;
        write(&mut object, ".rodata.clock", &leap_ns().to_ne_bytes())?;
        write(&mut object, "congestion_control", &named)?;
        Ok(object)
    }

    /// How far TAI is ahead of UTC on this host: a whole number of seconds, 0 where it is not known.
    fn leap_ns() -> u64 {
        let tai = clock_gettime_dynamic(DynamicClockId::Tai);
        let ahead = tai.map_or(0, |tai| {
            let utc = clock_gettime(ClockId::Realtime);
            let nanos = (tai.tv_sec - utc.tv_sec) * 1_000_000_000 + (tai.tv_nsec - utc.tv_nsec);
            (nanos + 500_000_000).div_euclid(1_000_000_000)
        });
        u64::try_from(ahead).unwrap_or(0) * 1_000_000_000
    }

    /// Writes `bytes` at the beginning of a map's initial value.
    fn write(object: &mut OpenObject, map: &str, bytes: &[u8]) -> Result<(), KernelError> {
        let mut maps = object.maps_mut();
        let mut found = maps.find(|found| found.name() == map).ok_or_else(|| lacks(map))?;
        let value = found.initial_value_mut().and_then(|value| value.get_mut(..bytes.len()));
        value.ok_or_else(|| lacks(map))?.copy_from_slice(bytes);
        Ok(())
    }

    /// The iterator over the sockets, which prints a line for each.
    fn show_sockets(object: &Object) -> Result<Link, KernelError> {
        let sockets = object.maps().find(|map| map.name() == "sockets");
        let program = object.progs_mut().find(|program| program.name() == "print_sockets");
        let (Some(sockets), Some(program)) = (sockets, program) else {
            return Err(lacks("its sockets"));
        };
        program.attach_iter(sockets.as_fd()).map_err(refused("read its sockets"))
    }

    fn lacks(what: &str) -> KernelError {
        KernelError::Refused("read PERT's BPF program", format!("it lacks {what}"))
    }

    fn refused(step: &'static str) -> impl FnOnce(libbpf_rs::Error) -> KernelError {
        move |error| {
            let said = COMPLAINTS.lock().map(|mut said| std::mem::take(&mut *said));
            let said = said.unwrap_or_default();
            let said = said.trim_end();
            let between = if said.is_empty() { "" } else { "\n" };
            KernelError::Refused(step, format!("{error:#}{between}{said}"))
        }
    }
}
