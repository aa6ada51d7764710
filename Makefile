# SPDX-License-Identifier: Apache-2.0
# The short way to everything; the build itself is described in meson.build.

BUILD := build
UNIT := /usr/local/lib/systemd/system/cove.service
SHARE := /usr/local/share
DOC := $(SHARE)/doc/cove
MANUALS = $(addprefix $(DESTDIR)$(SHARE)/,man/man1/cove.1.gz man/man1/cove-*.1.gz bash-completion/completions/cove zsh/site-functions/_cove \
    fish/vendor_completions.d/cove.fish)
INSTALLED = $(addprefix $(DESTDIR),$(addprefix /usr/local/bin/,cove cove-cli cove-here cove-bwrap coved cove-api cove-egress cove-agent cove-image cove-guest) $(UNIT) $(DOC) $(SHARE)/cove)

.DEFAULT_GOAL := help
.PHONY: help deps build check-build check-run check-start check-install check-uninstall run start reload stop test test-sdks test-templates test-tiers test-vm unit check fuzz bench soak format install deb uninstall clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: check-build ## compile to build/; root has what that needs installed before
	@tools/install-deps build
	@tools/compile

# Links are always writable; asked about one, find looks at what it leads to, and those of a sandbox's files may lead nowhere.
check-build:
	@theirs="$$(find $(BUILD) ! -type l ! -writable -print -quit 2>/dev/null)"; [ -z "$$theirs" ] || { \
	    echo "make: $$theirs is another user's: give all of it to yourself, as root: chown -R $$(id -un) $(CURDIR)/$(BUILD)" >&2; exit 1; }

check-run check-start: check-%:
	@tools/service check $*

check-install check-uninstall: check-%:
	@[ -n "$(DESTDIR)" ] || [ -w /usr/local/bin ] || { echo "make: /usr/local is for root to write to: sudo make $*" >&2; exit 1; }

run: check-run build ## set up everything, start the service here, run a first sandbox
	@tools/install-deps run
	@tools/service run

start: check-start build ## the same in the background, without the first sandbox
	@tools/install-deps run
	@tools/service start

reload: build ## put the build and the configuration in force while sandboxes go on
	@tools/service reload

stop: ## stop the service; it ends every sandbox
	@tools/service stop

test: ## everything: checks, unit, corpora of fuzzers, system, attack, network and SDK tests
	@tools/install-deps build run test
	@tools/test

test-sdks: ## only the tests with E2B's and MCP's SDKs, old ones too; they come from the registries, else they are skipped
	@tools/install-deps build run test
	@tools/test sdk
	@tests/sdk/run build/test/sdk-frameworks frameworks crewai docker

test-templates: ## only the tests of ready-made templates with all that they bring: minutes, a gigabyte from the registries, else they are skipped
	@tools/install-deps build run test
	@tools/test templates

test-vm: ## what a kernel makes a difference to, on Debian's and control groups v2, in an emulated machine (KERNEL=6.12 SUITE=trixie for another)
	@tools/install-deps build run test vm
	@tools/test-vm $(if $(SUITE),--suite $(SUITE)) $(if $(KERNEL),--kernel $(KERNEL))

test-tiers: ## suites with all sandboxes in another tier, 30 minutes of each (TIERS="gvisor microvm"; MINUTES=N; E2B=DIR: E2B's own suites of that checkout, too)
	@tools/install-deps build run test vm
	@tools/test-tiers $(if $(MINUTES),--minutes $(MINUTES)) $(TIERS)

unit: ## only the unit tests (ONLY=folder for one folder)
	@tools/install-deps build test
	@tools/test unit

check: ## only the static checks
	@tools/install-deps build test
	@tools/test check

fuzz: ## replay every fuzzer's corpus, then look for new inputs for FUZZ_SECONDS (default 300)
	@tools/install-deps build test
	@FUZZ_SECONDS=$${FUZZ_SECONDS:-300} tools/test fuzz

bench: build ## measure, side by side with what is installed otherwise
	@tools/install-deps run bench
	@bench/run

soak: build ## run a service under load for DURATION (10m), kill its workers meanwhile, and say what went wrong or grew
	@tools/install-deps run test
	@bench/soak $(DURATION)

format: ## clang-format the C sources in place
	@git ls-files '*.[ch]' | xargs -r clang-format -i

deps: ## install everything that any target needs
	@tools/install-deps build run test bench

install: check-install build ## install to /usr/local, with a systemd unit, man pages and completions (DESTDIR is honoured)
	@[ -n "$(DESTDIR)" ] || tools/install-deps run
	@meson install -C $(BUILD) --no-rebuild --quiet
	@install -Dm 644 dist/cove.service $(DESTDIR)$(UNIT)
	@install -Dm 644 -t $(DESTDIR)$(DOC) README.md
	@install -Dm 644 -t $(DESTDIR)$(DOC)/docs docs/*.md
	@tools/install-manuals $(BUILD) $(DESTDIR)$(SHARE) zsh/site-functions
	@echo "installed; start it at boot and now: systemctl daemon-reload && systemctl enable --now cove"
	@[ -n "$(DESTDIR)" ] || ! systemctl is-active --quiet cove 2>/dev/null || \
	    { echo "one runs already, still the version of before; sandboxes go on, and clients of the API reconnect, with:"; \
	    echo "  systemctl daemon-reload && systemctl reload cove && systemctl kill -s USR1 --kill-whom=main cove"; }

deb: build ## make a Debian package in build/
	@tools/package-deb

uninstall: check-uninstall ## remove what install put there; state, configuration and sandboxes' files stay
	@[ -n "$(DESTDIR)" ] || ! command -v systemctl >/dev/null || systemctl disable --now cove 2>/dev/null || true
	@there="$$(ls -d $(INSTALLED) 2>/dev/null)"; rm -rf $(INSTALLED) $(MANUALS); \
	    [ -n "$$there" ] && echo "removed: $$(echo $$there)" || echo "nothing is installed in $(DESTDIR)/usr/local"; \
	    kept="$$(ls -d $(DESTDIR)/etc/cove $(DESTDIR)/var/lib/cove 2>/dev/null)"; \
	    [ -z "$$kept" ] || { echo "kept, as they are yours: $$(echo $$kept)"; echo "to delete them with everything in them: rm -rf $$(echo $$kept)"; }
	@[ -n "$(DESTDIR)" ] || tools/service left

clean: ## remove what was built
	@rm -rf $(BUILD)
