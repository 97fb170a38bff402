#!/usr/bin/env bash
# Builds ASTRA-sim's two analytical binaries and prints their paths:  tools/astra.sh [SOURCE] [FOLDER]
#
#   SOURCE  an ASTRA-sim tree with `extern/` filled in as below (default: cloned from GitHub, at these commits)
#   FOLDER  where things go (default out/astra)
#
# Needs git, cmake, g++, protobuf (Debian: apt-get install git cmake g++ protobuf-compiler libprotobuf-dev). Two and a half
# minutes of one core, one compiler at a time (ASTRA_JOBS=N: more). Then: export HIPPO_ASTRA=the first path.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
folder=$(mkdir -p "${2:-$here/out/astra}" && cd "${2:-$here/out/astra}" && pwd)
jobs=${ASTRA_JOBS:-1}

# Place in the tree, repository, commit; results/simulators.md was measured with these. ASTRA-sim's own pins of the network
# backend, Chakra and spdlog are newer, and are not tried.
parts="
. astra-sim/astra-sim 518bd513ae110428cd62eb60efc0f3993fd53c70
extern/network_backend/analytical astra-sim/astra-network-analytical 599a0473a9a74f5383f73b3cea5a12b9bc5ebaef
extern/graph_frontend/chakra astra-sim/chakra f37c2bb50afa8b0e99b32ba9921662ab77502e85
extern/remote_memory_backend/analytical astra-sim/astra-memory-analytical 641cce854d256bfd288b1de9607b6757313363f9
extern/helper/fmt fmtlib/fmt 7e73566ce7bd3617cd4b14a2e3a19a2a30b524c7
extern/helper/spdlog gabime/spdlog 62302019babd8fdf63c1c6dc4c9faa48d441a7f0
extern/helper/yaml-cpp jbeder/yaml-cpp a83cd31548b19d50f3f983b069dceb4f4d50756d
"

for tool in git cmake g++ protoc; do
    command -v "$tool" >/dev/null ||
        { echo "astra.sh: no '$tool' here. To fix: apt-get install git cmake g++ protobuf-compiler libprotobuf-dev" >&2; exit 2; }
done

source=${1:-}
if [ -z "$source" ]; then
    source=$folder/source
    while read -r place repository commit; do
        [ -n "$place" ] || continue
        at=$source/$place
        [ -e "$at/.git" ] || git init -q "$at"
        [ "$(git -C "$at" rev-parse -q --verify HEAD || true)" = "$commit" ] && continue
        git -C "$at" fetch -q --depth 1 "https://github.com/$repository.git" "$commit"
        git -C "$at" checkout -q FETCH_HEAD
    done <<<"$parts"
fi
source=$(cd "$source" && pwd)
while read -r place repository commit; do
    [ -z "$place" ] || [ -f "$source/$place/README.md" ] ||
        { echo "astra.sh: $source/$place is empty. To fix: put $repository there, at commit $commit" >&2; exit 2; }
done <<<"$parts"

# What these commits need to fit each other: ASTRA-sim brings the YAML parser that the network backend would add once more,
# and calls two classes of Chakra's feeder without their namespace. Chakra's messages are made by protoc.
if grep -qs 'extern/yaml-cpp' "$source/extern/network_backend/analytical/CMakeLists.txt"; then
    mkdir -p "$source/extern/network_backend/analytical/extern/yaml-cpp"
    : >"$source/extern/network_backend/analytical/extern/yaml-cpp/CMakeLists.txt"
fi
cat >"$folder/names.h" <<'END'
#ifdef __cplusplus
namespace Chakra { namespace FeederV3 { class ETFeeder; class ETFeederNode; } using FeederV3::ETFeeder; using FeederV3::ETFeederNode; }
#endif
END
schema=$source/extern/graph_frontend/chakra/schema/protobuf
protoc et_def.proto --proto_path="$schema" --cpp_out="$schema"

: >"$folder/build.log"
nice -n 5 cmake -S "$source/build/astra_analytical" -B "$folder/build" -DCMAKE_BUILD_TYPE=None -DBUILDTARGET=all \
    -DCMAKE_CXX_FLAGS="-O1 -include $folder/names.h" -DCMAKE_UNITY_BUILD=ON \
    -DFETCHCONTENT_SOURCE_DIR_YAML-CPP="$source/extern/helper/yaml-cpp" -DYAML_CPP_BUILD_TOOLS=OFF \
    -DCMAKE_POLICY_VERSION_MINIMUM=3.5 >"$folder/cmake.log" 2>&1 ||
    { tail -n 20 "$folder/cmake.log" >&2; echo "astra.sh: cmake refused; all of it is in $folder/cmake.log" >&2; exit 1; }
for name in AstraSim_Analytical_Congestion_Aware AstraSim_Analytical_Congestion_Unaware; do
    nice -n 5 cmake --build "$folder/build" --target "$name" -j "$jobs" >>"$folder/build.log" 2>&1 ||
        { grep -m 5 'error' "$folder/build.log" >&2; echo "astra.sh: the build failed; all of it is in $folder/build.log" >&2; exit 1; }
    find "$folder/build" -type f -name "$name" -perm -u+x
done
