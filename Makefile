# Entry points: most install what is missing, configure, build, run.
# The build itself is CMake's (CMakePresets.json); nothing else is decided here.
PREFIX ?= /usr/local
DESTDIR ?=
JOBS ?= $(shell nproc)
PROMPT ?= Once upon a time
MODEL ?=
FUZZ_SECONDS ?= 600
# Of make test: short, or ci, which runs the short tests under sanitizers too and has Clang read everything.
SUITE ?= short
SEED ?= 1

configure = cmake --preset release --log-level=NOTICE -DCMAKE_INSTALL_PREFIX

.PHONY: help run build test test-levels test-long test-peers test-systems fuzz coverage bench install uninstall deb clean
.NOTPARALLEL:

help:
	@echo 'make run        build, then tell a story (MODEL=file.gguf PROMPT=text for another)'
	@echo 'make build      the program, at build/hearth'
	@echo 'make test       all tests; SUITE=ci: the short ones under sanitizers too'
	@echo 'make test-levels  the same tests as CPUs with AVX2 only, and without it, have them'
	@echo 'make test-long  every sanitizer, clang, Arm under qemu, fuzzing: an hour or more'
	@echo 'make test-peers the same answers as llama.cpp, and clients of the server (SEED=1)'
	@echo 'make test-systems  make run and the tests on bare Debian and Ubuntu, by debootstrap; as root'
	@echo 'make fuzz       every fuzz target for ten minutes (FUZZ_SECONDS=600)'
	@echo 'make coverage   share of the lines of src/file and src/text that their tests run'
	@echo 'make bench      speed of generation and prompts (MODEL=file.gguf)'
	@echo 'make install    program, libraries, header, man page (PREFIX=/usr/local, DESTDIR=)'
	@echo 'make uninstall  remove what make install wrote last'
	@echo 'make deb        packages for this release of Debian, in build/'
	@echo 'make clean      remove build/'

run: build
	build/hearth run $(if $(MODEL),'$(subst ','\'',$(MODEL))') -p '$(subst ','\'',$(PROMPT))'

build:
	@cmake/install-packages.sh build
	@$(configure)='$(PREFIX)'
	@cmake --build build -j $(JOBS) --target hearth_program

test:
	@cmake/install-packages.sh $(if $(filter ci,$(SUITE)),test-ci,test)
	@JOBS=$(JOBS) tests/suite.sh $(SUITE)

test-levels:
	@cmake/install-packages.sh test-levels
	@JOBS=$(JOBS) tests/suite.sh levels

test-long:
	@cmake/install-packages.sh test-long
	@JOBS=$(JOBS) tests/suite.sh long

test-peers:
	@cmake/install-packages.sh test-peers
	@JOBS=$(JOBS) SEED=$(SEED) tests/suite.sh peers

test-systems:
	@JOBS=$(JOBS) bench/systems.sh

fuzz:
	@cmake/install-packages.sh test-long
	@JOBS=$(JOBS) FUZZ_SECONDS=$(FUZZ_SECONDS) tests/suite.sh fuzz

coverage:
	@cmake/install-packages.sh test
	@JOBS=$(JOBS) python3 tests/coverage.py --lines

bench: build
	build/hearth bench $(if $(MODEL),'$(subst ','\'',$(MODEL))')

# These install no packages: what is missing for the build is an error of CMake.
install:
	@$(configure)='$(PREFIX)'
	@cmake --build build -j $(JOBS) --target hearth_installed
	@DESTDIR='$(DESTDIR)' cmake --install build

uninstall:
	@DESTDIR='$(DESTDIR)' cmake -DMANIFEST=build/install_manifest.txt -P cmake/uninstall.cmake

deb:
	@$(configure)=/usr
	@cmake --build build -j $(JOBS) --target hearth_installed
	@cd build && cpack -G DEB

clean:
	rm -rf build
