#!/usr/bin/env bash
# Real input through sealstone and back through the programs that the dump text belongs to:
# load -> dump -> mdb_load -> mdb_dump must give the input again, and the same by Berkeley DB.
#
# Headers differ by what only the other program knows (sizes of maps and pages): data is compared,
# and for LMDB's own form the header, too, but for its map size.
set -euo pipefail
cd "$(dirname "$0")/../.."

for program in mdb_load mdb_dump db_load db_dump; do
    command -v "$program" > /dev/null || {
        echo "roundtrip: $program is missing; install lmdb-utils and db-util" >&2
        exit 2
    }
done
cargo build --quiet --package sealstone-cli
sealstone="${CARGO_TARGET_DIR:-target}/debug/sealstone"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

data() { sed '1,/^HEADER=END$/d' "$1"; }
without_map_size() { grep -v '^mapsize=' "$1"; }

same() { # WHAT A B
    cmp "$2" "$3" || {
        echo "roundtrip: $1: not the same" >&2
        exit 1
    }
    echo "roundtrip: $1: the same"
}

loaded() { # STORE FILE: loads, verified
    "$sealstone" load --store "$1" --verify "$2" > "$work/figures" || {
        cat "$work/figures" >&2
        exit 1
    }
}

by_lmdb() { # STORE NAME DUMP_OPTION...: dumps, loads into LMDB, dumps as $work/NAME
    local store="$1" name="$2"
    shift 2
    mkdir "$work/$name.lmdb"
    "$sealstone" dump --store "$store" "$@" | mdb_load "$work/$name.lmdb" 2> /dev/null
    mdb_dump "$work/$name.lmdb" > "$work/$name"
}

by_berkeley() { # STORE NAME DUMP_OPTION...: the same by Berkeley DB
    local store="$1" name="$2"
    shift 2
    "$sealstone" dump --store "$store" --for berkeley "$@" | db_load "$work/$name.db"
    db_dump "$work/$name.db" > "$work/$name"
}

round_trip() { # NAME EXPECTED: all ways round for the store $work/NAME
    local name="$1" expected="$2" store="$work/$1" way
    data "$expected" > "$work/expected.data"
    for form in "" --print; do
        for way in by_lmdb by_berkeley; do
            "$way" "$store" "$name$form.$way" ${form:+"$form"}
            data "$work/$name$form.$way" > "$work/found.data"
            same "$name $form $way" "$work/found.data" "$work/expected.data"
        done
    done
}

for name in bitcoin-transactions bitcoin-outputs; do
    input="corpus/data/$name.dump"
    loaded "$work/$name" "$input"
    round_trip "$name" "$input"
    without_map_size "$input" > "$work/expected"
    without_map_size "$work/$name.by_lmdb" > "$work/found"
    same "$name with its header" "$work/found" "$work/expected"
done

# The print form of the real input was written by LMDB 0.9.24, which left backslashes unescaped. Its
# records are the first 1,000 of the other file; and an LMDB as old writes the same text again.
name=bitcoin-outputs-print
input="corpus/data/$name.dump"
loaded "$work/$name" "$input"
{
    sed '/^HEADER=END$/q' corpus/data/bitcoin-outputs.dump
    data corpus/data/bitcoin-outputs.dump | sed -n 1,2000p
    echo DATA=END
} > "$work/first-records"
round_trip "$name" "$work/first-records"
version="$(mdb_dump -V | sed -n 's/^LMDB \([0-9.]*\).*/\1/p')"
if [ "$(printf '%s\n' "$version" 0.9.24 | sort -V | tail -n 1)" = 0.9.24 ]; then
    mdb_dump -p "$work/$name.by_lmdb.lmdb" | grep -v '^mapsize=' > "$work/found"
    without_map_size "$input" > "$work/expected"
    same "$name in its own form" "$work/found" "$work/expected"
fi

# Several keyspaces at once, under their names.
{
    sed 's/^type=/database=outputs\n&/' corpus/data/bitcoin-outputs.dump
    sed 's/^type=/database=transactions\n&/' corpus/data/bitcoin-transactions.dump
} > "$work/two.dump"
loaded "$work/two" "$work/two.dump"
mkdir "$work/two.lmdb"
"$sealstone" dump --store "$work/two" | mdb_load "$work/two.lmdb" 2> /dev/null
mdb_dump -a "$work/two.lmdb" | grep -v '^mapsize=' > "$work/found"
without_map_size "$work/two.dump" > "$work/expected"
same "two keyspaces" "$work/found" "$work/expected"
