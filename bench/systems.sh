#!/bin/bash
# Builds and tests HEAD on other systems, as someone does who clones it there: debootstrap makes a bare one of each,
# which gets make and the clone, and nothing else. The packages that `make deb` makes there are installed in another
# bare one. `make test-systems` calls this.
#
#     sudo bench/systems.sh [FOLDER]      roots and logs are kept there (build/systems)
#
# SYSTEMS        of bookworm trixie sid noble musl (all): musl compiles by musl-gcc and links nothing
# TESTS          only the tests that this regular expression finds; none: - (all of the release build)
# JOBS           of the builds (all processors)
# MIRROR_DEBIAN  http://HOST/debian (what apt has here)
# MIRROR_UBUNTU  the same of Ubuntu
#
# A system that cannot be made is skipped, with the reason. The last lines are a table of systems, compilers and
# libraries, and how many systems passed. Needs root and debootstrap; for noble, the package ubuntu-keyring here or in
# the root of trixie; for musl, musl-tools.
set -u
cd "$(dirname "$0")/.." || exit 1
source=$PWD
folder=$(realpath -m "${1:-build/systems}")
jobs=${JOBS:-$(nproc)}
passed=0 failed=0 skipped=0
rows=

skip() {
    echo "skip $1: $2"
    skipped=$((skipped + 1))
    return 1
}

# mirror ORIGIN: where apt has the packages of a distribution from.
mirror() {
    # Its words are apt's.
    # shellcheck disable=SC2016
    apt-get indextargets --format '$(ORIGIN) $(REPO_URI)' 2>/dev/null | sed -n "s/^$1 //p" | grep -v security | head -n 1
}

# A signed list of suites cannot be trusted without its key. Debian 12 has no package of Ubuntu's, Debian 13 has.
ubuntu_keyring() {
    key=usr/share/keyrings/ubuntu-archive-keyring.gpg
    test -e "/$key" && echo "/$key" && return
    test ! -e "$folder/trixie.made" || test -e "$folder/trixie/$key" || inside trixie apt-get install -q -y ubuntu-keyring >/dev/null 2>&1
    test -e "$folder/trixie/$key" && echo "$folder/trixie/$key"
}

# inside SYSTEM COMMAND...: runs it there. Mounts are in a namespace of its own, so that they end with it, whatever
# ends it, and nothing here can be deleted through them.
inside() {
    root=$folder/$1
    shift
    # The inner shell expands them.
    # shellcheck disable=SC2016
    unshare --mount --pid --fork --kill-child --propagation private sh -c '
        root=$1
        shift
        mount -t proc proc "$root/proc" && mount --rbind /sys "$root/sys" && mount -t tmpfs tmpfs "$root/dev" || exit 1
        for d in null zero full random urandom tty; do
            : >"$root/dev/$d" && mount --bind "/dev/$d" "$root/dev/$d" || exit 1
        done
        mkdir "$root/dev/pts" "$root/dev/shm"
        mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts" && ln -s pts/ptmx "$root/dev/ptmx"
        mount -t tmpfs tmpfs "$root/dev/shm"
        ln -s /proc/self/fd "$root/dev/fd"
        exec chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 "$@" </dev/null
    ' sh "$root" "$@"
}

# make_root SYSTEM: a bare system, once.
make_root() {
    if test -e "$folder/$1.made" && test -d "$folder/$1.bare"; then return 0; fi
    components=main script=
    case $1 in
    noble) components=main,universe script=gutsy from=${MIRROR_UBUNTU:-$(mirror Ubuntu)} name=MIRROR_UBUNTU keyring=$(ubuntu_keyring) ;;
    *) from=${MIRROR_DEBIAN:-$(mirror Debian)} name=MIRROR_DEBIAN keyring=/usr/share/keyrings/debian-archive-keyring.gpg ;;
    esac
    test -n "$from" || skip "$1" "apt has no mirror of it, and $name names none" || return
    test -e "$keyring" || skip "$1" "there is no keyring of its packages" || return
    rm -rf --one-file-system "${folder:?}/$1"
    # Older debootstraps do not know noble, which is made as gutsy was.
    debootstrap --variant=minbase --components="$components" --keyring="$keyring" "$1" "$folder/$1" "$from" ${script:+"$script"} \
        >"$folder/$1.debootstrap.log" 2>&1 ||
        skip "$1" "debootstrap from $from: $(tail -n 1 "$folder/$1.debootstrap.log")" || return
    cp /etc/resolv.conf "$folder/$1/etc/resolv.conf"
    # A mirror that is refreshed seldom has a sid whose list has expired. debootstrap does not mind either.
    echo 'Acquire::Check-Valid-Until "false";' >"$folder/$1/etc/apt/apt.conf.d/expired"
    rm -rf --one-file-system "${folder:?}/$1.bare"
    cp -a "$folder/$1" "$folder/$1.bare" || return
    inside "$1" apt-get install -q -y --no-install-recommends make >"$folder/$1.debootstrap.log" 2>&1 ||
        skip "$1" "apt-get install make: $(tail -n 1 "$folder/$1.debootstrap.log")" || return
    touch "$folder/$1.made"
}

# timed WHAT SYSTEM COMMAND...: runs it there with its output in a log; says times, status and last line.
timed() {
    what=$1 system=$2 log=$folder/$2.$1.log
    shift 2
    TIMEFORMAT="%R s, %U + %S s of CPU"
    { time inside "$system" "$@" >"$log" 2>&1; } 2>"$log.time"
    status=$?
    printf '%s %s: %s: status %d: %s\n' "$system" "$what" "$(tail -n 1 "$log.time")" $status "$(grep . "$log" | tail -n 1)"
    return $status
}

# The release build's tests, and the summary of tests/report.py.
# shellcheck disable=SC2016
test_script='
    cd /hearth && cmake/install-packages.sh test && cmake --preset release --log-level=WARNING || exit 1
    targets=all
    if [ -n "$1" ]; then
        targets="hearth_program test_data"
        for name in $(ctest --test-dir build -N -R "$1" | sed -n "s/^ *Test *#[0-9]*: //p" | tr / _); do
            ninja -C build -t query "test_$name" >/dev/null 2>&1 && targets="$targets test_$name"
        done
    fi
    # Targets are words of the loop above.
    cmake --build build -j "$2" --target $targets || exit 1
    HEARTH_TEST_REPORT=$PWD/build/cases.tsv ctest --test-dir build -j "$2" --output-on-failure \
        --output-junit "$PWD/build/ctest.xml" ${1:+-R "$1"}
    python3 tests/report.py build'

# shellcheck disable=SC2016
row_script='
    version() { pkg-config --modversion "$1" 2>/dev/null || echo -; }
    . /etc/os-release
    http="llhttp $(version libllhttp)"
    [ "$http" != "llhttp -" ] || http="http-parser $(dpkg-query -W -f "\${Version}" libhttp-parser-dev | sed "s/-.*//")"
    echo "| $PRETTY_NAME | gcc $(gcc -dumpfullversion) | $(cmake --version | sed -n "s/cmake version //p") |" \
        "$(ldd --version | sed -n "1s/.* //p") | $(version libpcre2-8) | $(version libutf8proc) | $(version liburing) |" \
        "$(version libcurl) | $(version libuv) | $http | $(glslc --version | sed -n "1s/ .*//; s/shaderc v//p") |"'

# test_packages SYSTEM: makes its packages, and installs them in a root that has nothing else.
test_packages() {
    timed deb "$1" sh -c 'apt-get install -q -y --no-install-recommends dpkg-dev file && make -C /hearth deb' || return
    cp "$folder/$1"/hearth/build/*.deb "$folder/$1.bare/root/" || return
    timed install "$1.bare" sh -c 'apt-get install -q -y --no-install-recommends /root/*.deb && hearth --version &&
        hearth run -q --seed 1 -n 20 -p Once'
}

run_system() {
    make_root "$1" || return
    rm -rf --one-file-system "$folder/$1/hearth"
    git clone -q --no-hardlinks "$source" "$folder/$1/hearth" || return
    ok=true
    timed run "$1" make --no-print-directory -C /hearth run "JOBS=$jobs" || ok=false
    if $ok && test "${TESTS-}" != -; then
        timed tests "$1" sh -c "$test_script" sh "${TESTS-}" "$jobs" || ok=false
    fi
    if $ok; then test_packages "$1" || ok=false; fi
    $ok && passed=$((passed + 1)) || failed=$((failed + 1))
    rows="$rows$(inside "$1" sh -c "$row_script" 2>/dev/null)"$'\n'
}

# Every source of the library and the program, by headers of musl, of the kernel and of the libraries that are used.
run_musl() {
    command -v musl-gcc >/dev/null || skip musl "there is no musl-gcc: apt-get install musl-tools" || return
    rm -rf --one-file-system "$folder/musl"
    mkdir -p "$folder/musl/headers"
    for header in linux asm-generic vulkan vk_video liburing liburing.h xxhash.h pcre2.h utf8proc.h uv uv.h \
        llhttp.h http_parser.h editline histedit.h "$(gcc -print-multiarch)/asm" "$(gcc -print-multiarch)/curl"; do
        test ! -e "/usr/include/$header" || ln -s "/usr/include/$header" "$folder/musl/headers/"
    done
    log=$folder/musl.log
    CC=musl-gcc CFLAGS="-idirafter $folder/musl/headers" cmake -S . -B "$folder/musl/build" -G Ninja -DHEARTH_TESTS=OFF \
        -DHEARTH_BENCH=OFF -DCMAKE_BUILD_TYPE=Release >"$log" 2>&1 || skip musl "it cannot be configured: $log" || return
    # pkg-config names a folder of glibc's headers for libcurl.
    sed -i "s/^  FLAGS = /  FLAGS = -fsyntax-only /; s, -isystem /usr/include/$(gcc -print-multiarch),,g" \
        "$folder/musl/build/build.ninja"
    objects=$(ninja -C "$folder/musl/build" -t targets all | sed -n 's/^\(.*\.c\.o\): .*/\1/p')
    # Names of objects have no spaces.
    # shellcheck disable=SC2086
    if nice ninja -k 0 -j "$jobs" -C "$folder/musl/build" $objects >>"$log" 2>&1; then
        passed=$((passed + 1))
        echo "musl: $(echo "$objects" | wc -l) files compile by $(musl-gcc --version | head -n 1)"
    else
        failed=$((failed + 1))
        grep 'error:' "$log"
    fi
}

test "$(id -u)" = 0 || { echo "only root can make other systems" >&2; exit 1; }
command -v debootstrap >/dev/null || { echo "there is no debootstrap: apt-get install debootstrap" >&2; exit 1; }
mkdir -p "$folder"
for s in ${SYSTEMS:-bookworm trixie sid noble musl}; do
    case $s in
    musl) run_musl ;;
    bookworm | trixie | sid | noble) run_system "$s" ;;
    *) skip "$s" "it is none of bookworm, trixie, sid, noble and musl" ;;
    esac
done
echo
echo "| system | compiler | CMake | glibc | PCRE2 | utf8proc | liburing | libcurl | libuv | HTTP | glslc |"
echo "|---|---|---|---|---|---|---|---|---|---|---|"
printf '%s' "$rows"
echo "$passed passed, $failed failed, $skipped skipped"
test $failed = 0
