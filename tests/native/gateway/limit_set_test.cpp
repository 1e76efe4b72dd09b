// Sets of limits, with scripted limits; and the ceilings of the bands.
#include "gateway/limit_set.h"

#include <cmath>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "check.h"
#include "gateway/ceilings.h"
#include "offered.h"

using namespace spillway;
using gateway::Ceilings;
using gateway::LimitPolicy;
using gateway::LimitSet;
using gateway::Occasion;
using sim::RequestId;

namespace {

/// The answers of a limit, and its notifications.
struct Script {
  bool is_open = true;
  std::optional<RequestId> refused;  ///< may not start
  std::optional<double> setting;
  std::optional<double> permits;
  std::optional<double> saturation;
  bool follows_signals = false;
  bool depends_on_request = false;
  bool frees_at_first_token = false;

  int asked = 0;
  int started = 0;
  int first_tokens = 0;
  int ended = 0;
  std::int64_t workers = 0;
};

class ScriptedLimit final : public LimitPolicy {
 public:
  explicit ScriptedLimit(Script& script) : script_(script) {}
  bool is_open(const Occasion&) const override {
    ++script_.asked;
    return script_.is_open;
  }
  bool may_start(const signals::RequestView& request, const Occasion& occasion) const override {
    return is_open(occasion) && request.id() != script_.refused;
  }
  void started(const signals::RequestView&) override { ++script_.started; }
  void first_token(const signals::RequestView&) override { ++script_.first_tokens; }
  void ended(const signals::RequestView&) override { ++script_.ended; }
  std::optional<double> setting() const override { return script_.setting; }
  std::optional<double> permits() const override { return script_.permits; }
  void resize(double setting) override { script_.setting = setting; }
  std::optional<double> saturation(const Occasion&) const override { return script_.saturation; }
  bool follows_signals() const override { return script_.follows_signals; }
  bool depends_on_request() const override { return script_.depends_on_request; }
  bool frees_at_first_token() const override { return script_.frees_at_first_token; }
  void set_workers(std::int64_t workers) override { script_.workers = workers; }

 private:
  Script& script_;
};

LimitSet limits_of(std::vector<Script>& scripts) {
  std::vector<std::unique_ptr<LimitPolicy>> limits;
  for (Script& script : scripts) limits.push_back(std::make_unique<ScriptedLimit>(script));
  return LimitSet(std::move(limits));
}

const auto kTwoRequests = make_table({{}, {}});
const signals::RequestView kFirst(*kTwoRequests, RequestId{0});
const signals::RequestView kSecond(*kTwoRequests, RequestId{1});

void all_limits_must_agree() {
  std::vector<Script> scripts(2);
  LimitSet limits = limits_of(scripts);
  check(limits.is_open({}, true) && limits.may_start(kFirst, {}), "all are open");
  check(limits.held() == std::vector<char>{0, 0}, "none has held");
  scripts[1].refused = kSecond.id();
  check(limits.may_start(kFirst, {}) && !limits.may_start(kSecond, {}), "that request alone");
  check(limits.held() == std::vector<char>{0, 1}, "the second has held it");
}

void only_the_first_closed_limit_holds() {
  std::vector<Script> scripts{{.is_open = true}, {.is_open = false}, {.is_open = false}};
  LimitSet limits = limits_of(scripts);
  check(!limits.is_open({}, true), "two are closed");
  check(limits.held() == std::vector<char>{0, 1, 0}, "the first of them");
  check(scripts[2].asked == 0, "the next is not asked");
}

void a_closed_limit_holds_nothing_where_nothing_waits() {
  std::vector<Script> scripts{{.is_open = false}};
  LimitSet limits = limits_of(scripts);
  check(!limits.is_open({}, false) && limits.held() == std::vector<char>{0}, "nothing waits");
  check(!limits.is_open({}, true) && limits.held() == std::vector<char>{1}, "something does");
  scripts[0].is_open = true;
  check(limits.is_open({}, true) && limits.held() == std::vector<char>{1}, "it has held before");
}

void every_limit_is_notified() {
  std::vector<Script> scripts{{.is_open = false}, {}};
  LimitSet limits = limits_of(scripts);
  for (int i = 0; i < 3; ++i) limits.started(kFirst);
  for (int i = 0; i < 2; ++i) limits.first_token(kFirst);
  limits.ended(kFirst);
  limits.set_workers(5);
  for (const Script& script : scripts) {
    check(script.started == 3 && script.first_tokens == 2, "what began");
    check(script.ended == 1 && script.workers == 5, "what ended, and the fleet");
  }
}

void figures_are_of_the_tightest_limit() {
  std::vector<Script> scripts{{.permits = 6, .saturation = 0.25}, {}, {.permits = 8}};
  const LimitSet limits = limits_of(scripts);
  check(limits.permits() == 6, "the fewest permits");
  check(limits.saturation(nullptr, {}) == 0.25, "the only saturation");
  scripts[2].saturation = 0.125;
  check(limits.saturation(nullptr, {}) == 0.25, "the highest saturation");
  std::vector<Script> others(1);
  check(std::isnan(limits_of(others).permits()), "it does not count requests");
  check(limits_of(others).saturation(nullptr, {}) == 0, "nor saturation");
}

void only_limits_that_no_report_can_open_are_shut() {
  std::vector<Script> scripts{{.is_open = false, .follows_signals = true}, {}};
  const LimitSet limits = limits_of(scripts);
  check(!limits.is_shut({}), "a report may open it");
  scripts[1].is_open = false;
  check(limits.is_shut({}), "no report opens the second");
}

void traits_of_one_are_those_of_all() {
  std::vector<Script> none(2);
  check(!limits_of(none).depends_on_request() && !limits_of(none).frees_at_first_token(), "none");
  check(limits_of(none).movable() == nullptr, "none can be moved");
  std::vector<Script> scripts{{}, {.setting = 3, .depends_on_request = true}, {.setting = 4}};
  scripts[2].frees_at_first_token = true;
  const LimitSet limits = limits_of(scripts);
  check(limits.depends_on_request() && limits.frees_at_first_token(), "one each");
  limits.movable()->resize(9);
  check(scripts[1].setting == 9 && scripts[2].setting == 4, "the first that can be moved is");
}

// ---- ceilings ------------------------------------------------------------------------------

/// Sets every ceiling to the saturation plus a step by band; a static policy is called once.
class Steps final : public gateway::UsageLimitPolicy {
 public:
  explicit Steps(bool follows) : follows_(follows) {}
  bool follows_saturation() const override { return follows_; }
  void set_ceilings(double saturation, std::span<double> ceilings) override {
    for (std::size_t i = 0; i < ceilings.size(); ++i) {
      ceilings[i] = saturation + static_cast<double>(i);
    }
  }

 private:
  bool follows_;
};

std::vector<double> all_of(const Ceilings& ceilings) {
  return {ceilings.of(0), ceilings.of(1), ceilings.of(2)};
}

void static_ceilings_are_set_once() {
  const std::vector<double> configured{9, 9, 9};
  const Ceilings ceilings(std::make_unique<Steps>(false), configured, false);
  check(!ceilings.follow_saturation(), "they stay");
  check(all_of(ceilings) == std::vector<double>{0, 1, 2}, "without saturation");
}

void ceilings_that_follow_begin_as_configured() {
  Ceilings ceilings(std::make_unique<Steps>(true), {0.9, 0.8, 0.7}, false);
  check(ceilings.follow_saturation(), "they follow");
  check(all_of(ceilings) == std::vector<double>{0.9, 0.8, 0.7}, "as configured");
  ceilings.follow(0.5);
  check(all_of(ceilings) == std::vector<double>{0.5, 1.5, 2.5}, "as the policy sets them");
}

void a_cycle_lets_no_band_rise_above_the_one_before() {
  const Ceilings ceilings(std::make_unique<Steps>(true), {0.5, 0.9, 0.3}, true);
  check(all_of(ceilings) == std::vector<double>{0.5, 0.5, 0.3}, "the middle one is cut");
}

}  // namespace

CASES(all_limits_must_agree, only_the_first_closed_limit_holds,
      a_closed_limit_holds_nothing_where_nothing_waits, every_limit_is_notified,
      figures_are_of_the_tightest_limit, only_limits_that_no_report_can_open_are_shut,
      traits_of_one_are_those_of_all, static_ceilings_are_set_once,
      ceilings_that_follow_begin_as_configured, a_cycle_lets_no_band_rise_above_the_one_before);
