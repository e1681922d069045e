//! The store's options by name.

use std::time::Duration;

use sealstone::{FilterPolicy, Fold, Options, ReadMode};

use super::Wrong;
use super::machine::Machine;

/// Sets one option.
pub fn set(options: Options, name: &str, value: &str, machine: &Machine) -> Result<Options, Wrong> {
    let flag = || match value {
        "true" | "yes" => Ok(true),
        "false" | "no" => Ok(false),
        other => Err(Wrong::Text(format!("{name} is true or false, not {other}"))),
    };
    let number = || machine.size(value);
    let small = || {
        let value = number()?;
        u32::try_from(value).map_err(|_| Wrong::Text(format!("{name} {value} is too large")))
    };
    Ok(match name {
        "create" => options.create(flag()?),
        "read_only" => options.read_only(flag()?),
        "memory_bytes" => options.memory_bytes(number()?),
        "write_region_bytes" => options.write_region_bytes(number()?),
        "filter_budget_bytes" => options.filter_budget_bytes(number()?),
        "filter_policy" => options.filter_policy(policy(value)?),
        "filter_sample_bits" => options.filter_sample_bits(small()?.min(255) as u8),
        "scan_bytes" => options.scan_bytes(number()?),
        "window_bytes" => options.window_bytes(number()?),
        "chunk_bytes" => options.chunk_bytes(small()?),
        "block_records" => options.block_records(small()?),
        "seal_records" => options.seal_records(small()?),
        "seal_bytes" => options.seal_bytes(number()?),
        "batch_records_max" => options.batch_records_max(small()?),
        "batch_bytes_max" => options.batch_bytes_max(number()?),
        "pinned_generations_max" => options.pinned_generations_max(small()?),
        "queue_slots" => options.queue_slots(small()?),
        "descriptors_max" => options.descriptors_max(small()?),
        "read_mode" if value == "Mmap" => options.read_mode(ReadMode::Mmap),
        "read_mode" if value == "Pread" => options.read_mode(ReadMode::Pread),
        "mappings_max" => options.mappings_max(small()?),
        "cold_reads_ahead" => options.cold_reads_ahead(flag()?),
        "hash_bits" => options.hash_bits(
            u8::try_from(number()?).map_err(|_| Wrong::Text("hash_bits is too large".into()))?,
        ),
        "family_seed" => options.family_seed([number()? as u8; 16]),
        "write_deadline" => options.write_deadline(Duration::from_millis(number()?)),
        "output_buffer_bytes" => options.output_buffer_bytes(small()?),
        "cursor_buffer_bytes" => options.cursor_buffer_bytes(small()?),
        "key_fence_bytes" => options.key_fence_bytes(small()?),
        "manifest_roll_bytes" => options.manifest_roll_bytes(number()?),
        "fold" if value == "off" => options.fold(Fold::Off),
        "fold" => options.fold(Fold::Runs(
            u8::try_from(number()?).map_err(|_| Wrong::Text("fold is too large".into()))?,
        )),
        "fold_bytes" => options.fold_bytes(number()?),
        "run_part_records" => options.run_part_records(small()?),
        "retry_delay" => options.retry_delay(Duration::from_millis(number()?)),
        other => return Err(format!("no option {other}").into()),
    })
}

/// A policy of filters by its name.
fn policy(name: &str) -> Result<FilterPolicy, Wrong> {
    Ok(match name {
        "Planned" => FilterPolicy::Planned,
        "NewestFirst" => FilterPolicy::NewestFirst,
        "WindowOnly" => FilterPolicy::WindowOnly,
        "All" => FilterPolicy::All,
        "None" => FilterPolicy::None,
        other => return Err(format!("no policy {other}").into()),
    })
}

/// The lines of a plan that set these options: their own text, word by word.
pub(crate) fn options_of(options: &Options) -> Vec<String> {
    let text = format!("{options:?}");
    let inner = text.trim_start_matches("Options { ").trim_end_matches(" }");
    let mut lines = vec!["options tiny".to_string()];
    // Commas inside of brackets do not separate.
    let mut depth = 0;
    let separates = |c: char| {
        depth += i32::from("([".contains(c)) - i32::from(")]".contains(c));
        c == ',' && depth == 0
    };
    for field in inner.split(separates) {
        let Some((name, value)) = field.trim().split_once(": ") else {
            continue;
        };
        let value = ["Some(", "Runs("]
            .iter()
            .find_map(|around| value.strip_prefix(around))
            .map_or(value, |value| value.trim_end_matches(')'));
        let value = match value {
            "None" if name != "filter_policy" => continue,
            "Off" => "off".to_string(),
            value if value.starts_with('[') => {
                value[1..].split(',').next().unwrap_or("0").to_string()
            }
            value => milliseconds(value).unwrap_or_else(|| value.to_string()),
        };
        if name != "background" {
            lines.push(format!("option {name} {value}"));
        }
    }
    lines
}

/// A duration's text in milliseconds.
fn milliseconds(text: &str) -> Option<String> {
    let plain = |digits: &str| digits.parse::<u64>().ok();
    match text.strip_suffix("ms") {
        Some(digits) => plain(digits).map(|ms| ms.to_string()),
        None => plain(text.strip_suffix('s')?).map(|seconds| (seconds * 1000).to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_come_back_from_their_lines() {
        let options = Options::tiny()
            .queue_slots(3)
            .read_mode(ReadMode::Mmap)
            .cold_reads_ahead(true)
            .retry_delay(Duration::from_secs(7))
            .filter_policy(FilterPolicy::None)
            .fold(Fold::Runs(5));
        let machine = Machine::new();
        let mut again = Options::tiny();
        for line in &options_of(&options)[1..] {
            let words: Vec<&str> = line.split(' ').collect();
            again = set(again, words[1], words[2], &machine).unwrap();
        }
        assert_eq!(format!("{options:?}"), format!("{again:?}"));
    }
}
