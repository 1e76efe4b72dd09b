// Policies by themselves, for `spillway.testing`. Each class holds one policy, built as a run
// builds it, and passes it what a test says that it sees. Requests are known by their ids, which
// Python keeps.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/settings.h"
#include "bindings/surroundings.h"
#include "gateway/admission_chain.h"
#include "gateway/band_queues.h"
#include "gateway/bands.h"
#include "gateway/ceilings.h"
#include "gateway/controller/guard.h"
#include "gateway/eviction.h"
#include "gateway/limit_set.h"
#include "router/filters/filter.h"
#include "router/pickers/picker.h"
#include "router/policy.h"
#include "router/router.h"
#include "router/scorers/scorer.h"
#include "sim/exclusive.h"
#include "sim/rng.h"

/// Python knows requests by numbers.
template <>
struct pybind11::detail::type_caster<spillway::sim::RequestId> {
  PYBIND11_TYPE_CASTER(spillway::sim::RequestId, const_name("int"));
  bool load(handle source, bool convert) {
    make_caster<std::uint32_t> number;
    if (!number.load(source, convert)) return false;
    value.value = number;
    return true;
  }
  static handle cast(spillway::sim::RequestId id, return_value_policy, handle) {
    return PyLong_FromUnsignedLong(id.value);
  }
};

namespace spillway::bindings {

namespace testing {

namespace {

using sim::TenantId;
using Stage = Surroundings::Stage;

/// A policy that gets one call at a time, also if it calls what holds it.
struct Single {
  sim::Exclusive calls{"built policy", ""};
};

// A method as a function, whose calls do not contain each other.
template <class Policy, class Result, class... Arguments>
auto alone(const char* name, Result (Policy::*method)(Arguments...)) {
  return [=](Policy& self, Arguments... arguments) -> Result {
    const sim::Exclusive::Call inside(self.calls, name);
    return (self.*method)(std::forward<Arguments>(arguments)...);
  };
}

// ---- gateway ------------------------------------------------------------------------------------

class Admission : public Single {
 public:
  Admission(const Settings& settings, std::uint64_t seed)
      : around_(settings, seed, needs_in(settings)),
        needs_choice_(needs_in(settings).next_choice) {}

  /// The request's id, the reason of the rejection, its Retry-After in seconds, and its detail.
  std::tuple<RequestId, std::string_view, double, std::string> decide(
      const Offer& offer, const When& now_s, const Scripts& scripts, bool has_workers,
      const std::optional<std::int64_t>& next_choice, bool commit) {
    const Time now = around_.advance(now_s);
    around_.script(scripts);
    if (!chain_) chain_.emplace(make_chain(around_));
    signals::View view = around_.view(has_workers);
    if (next_choice) view = view.knowing(around_.instance(*next_choice));
    if (needs_choice_ && !next_choice) {
      refuse("next_choice", "None",
             "must be the instance that the router would choose: the policy looks at no other");
    }
    const RequestId id = around_.add(offer);
    const signals::RequestView request = around_.request(id);
    sim::Draws draws(around_.seed, sim::Stream::admission, request.row());
    const auto reason = chain_->decide(request, view, now, draws);
    if (reason) {
      return {id, gateway::kAdmissionReasons.at(*reason).name,
              sim::to_seconds(chain_->retry_after(request, now)), chain_->detail()};
    }
    if (commit) {
      chain_->commit(request, now);
      around_.note_admitted(id);
      around_.set_stage(id, Stage::admitted);
    }
    return {id, "", 0, ""};
  }

  void dispatched(RequestId id, std::int64_t instance, const When& now_s) {
    around_.expect(id, {Stage::admitted}, "was admitted and has not been dispatched");
    const InstanceId to = around_.instance(instance);
    const Time now = around_.advance(now_s);
    chain_->dispatched(around_.request(id), now);
    around_.note_sent(id, to);
    around_.set_stage(id, Stage::dispatched);
  }
  void first_token(RequestId id, const When& now_s) {
    around_.expect(id, {Stage::dispatched}, "was dispatched and awaits its first token");
    const Time now = around_.advance(now_s);
    around_.note_first_token(id);
    chain_->first_token(around_.request(id), around_.sent_to(id), now);
    around_.set_stage(id, Stage::answered);
  }
  void finished(RequestId id, const std::string& how, const When& now_s) {
    around_.expect(id, {Stage::admitted, Stage::dispatched, Stage::answered},
                   "was admitted and has not finished");
    const Outcome outcome = outcome_of(how);
    const Time now = around_.advance(now_s);
    around_.stage(id) != Stage::admitted ? around_.note_ended(id) : around_.note_lost(id);
    if (outcome == Outcome::completed) around_.note_completed(id);
    chain_->finished(around_.request(id), outcome, now);
    around_.set_stage(id, Stage::over);
  }

 private:
  static signals::Needs needs_in(const Settings& settings) {
    return signals::needs_of(settings.as<Simulation>().gateway.admission);
  }
  static gateway::AdmissionChain make_chain(const Surroundings& around) {
    return gateway::make_chain(around.simulation.gateway.admission, around.scope());
  }

  Surroundings around_;
  bool needs_choice_;
  std::optional<gateway::AdmissionChain> chain_;  // once the number of instances is known
};

class Limit : public Single {
 public:
  Limit(const Settings& settings, std::uint64_t seed)
      : around_(settings, seed, needs_in(settings)), limits_(make_limits(around_)) {
    set_workers(static_cast<std::int64_t>(around_.count_configured()));
  }

  RequestId offer(const Offer& offer, const When& now_s) {
    around_.advance(now_s);
    return around_.add(offer);
  }
  /// may_start, is_open, setting, permits, saturation.
  std::tuple<bool, bool, std::optional<double>, std::optional<double>, double> decide(
      RequestId id, double ceiling, const Scripts& scripts, const When& now_s) {
    const Time now = around_.advance(now_s);
    around_.script(scripts);
    const signals::View view = around_.view();
    const gateway::Occasion occasion{ceiling, &view, now};
    const gateway::LimitPolicy* movable = limits_.movable();
    const double permits = limits_.permits();
    return {limits_.may_start(around_.request(id), occasion), limits_.is_open(occasion, false),
            movable ? movable->setting() : std::nullopt,
            std::isnan(permits) ? std::nullopt : std::optional(permits),
            limits_.saturation(&view, now)};
  }
  void started(RequestId id) {
    around_.expect(id, {Stage::offered, Stage::over}, "is not in flight");
    limits_.started(around_.request(id));
    around_.set_stage(id, Stage::dispatched);
  }
  void first_token(RequestId id) {
    around_.expect(id, {Stage::dispatched}, "is in flight and awaits its first token");
    limits_.first_token(around_.request(id));
    around_.set_stage(id, Stage::answered);
  }
  void ended(RequestId id) {
    around_.expect(id, {Stage::dispatched, Stage::answered}, "is in flight");
    limits_.ended(around_.request(id));
    around_.set_stage(id, Stage::over);
  }
  void resize(double setting) {
    gateway::LimitPolicy* movable = limits_.movable();
    if (!movable) throw sim::UsageError("this limit cannot be moved");
    movable->resize(setting);
  }
  void set_workers(std::int64_t workers) { limits_.set_workers(workers); }

 private:
  static signals::Needs needs_in(const Settings& settings) {
    return signals::needs_of(settings.as<Simulation>().gateway.limit);
  }
  static gateway::LimitSet make_limits(const Surroundings& around) {
    std::vector<std::unique_ptr<gateway::LimitPolicy>> limits;
    for (const gateway::Limit& limit : around.simulation.gateway.limit) {
      limits.push_back(
          gateway::make_limit(limit, around.requests.tenants, around.requests.slo_classes));
    }
    return gateway::LimitSet(std::move(limits));
  }

  Surroundings around_;
  gateway::LimitSet limits_;
};

/// The first band of a gateway: its queues, and whose turn it is.
class Fairness : public Single, private gateway::ServiceMeter {
 public:
  Fairness(const Settings& settings, std::uint64_t seed)
      : around_(settings, seed, needs_in(settings)),
        band_(band_in(settings), around_.requests, classes_of(around_)),
        emitted_(around_.requests.num_groups()) {
    band_.set_meter(*this);
  }

  /// The request's id; none: its queue is full.
  std::optional<RequestId> joined(const Offer& offer, const Scripts& scripts, const When& now_s) {
    const Time now = around_.advance(now_s);
    around_.script(scripts);
    const RequestId id = around_.add(offer);
    if (!band_.has_room(id, around_.view())) return std::nullopt;
    band_.join(id, around_.view(), now);
    around_.set_stage(id, Stage::admitted);
    return id;
  }
  /// `may_start`: tenants; none: all.
  std::optional<RequestId> decide(const std::optional<std::vector<std::string>>& may_start,
                                  const When& now_s) {
    const auto* policy =
        std::get_if<gateway::PolicyClasses>(&around_.simulation.gateway.bands.front().fairness);
    const std::size_t count = policy ? policy->classes.size() : around_.requests.tenants.size();
    Permitted permitted(count, !may_start);
    if (may_start) {
      for (const std::string& name : *may_start) {
        permitted.allow(policy ? position(policy->classes, name, "may_start")
                               : position(around_.requests.tenants, name, "may_start"));
      }
    }
    const Time now = around_.advance(now_s);
    band_.charge_tokens(now);
    while (band_.is_due()) {
      const auto taken = band_.take_next(permitted, now);
      if (!taken) break;
      around_.set_stage(taken->id, taken->is_too_late ? Stage::over : Stage::dispatched);
      if (taken->is_too_late) continue;
      around_.note_sent(taken->id, InstanceId{0});
      return taken->id;
    }
    return std::nullopt;
  }
  void left(RequestId id, const When& now_s) {
    around_.expect(id, {Stage::admitted}, "waits in its queue");
    band_.withdraw(id, around_.advance(now_s));
    around_.set_stage(id, Stage::over);
  }
  void first_token(RequestId id, const When& now_s) {
    around_.expect(id, {Stage::dispatched}, "was dispatched and awaits its first token");
    band_.first_token(id, around_.advance(now_s));
    around_.set_stage(id, Stage::answered);
  }
  void add_tokens(RequestId id, std::int64_t tokens) {
    around_.expect(id, {Stage::dispatched, Stage::answered}, "was dispatched and has not finished");
    emitted_[around_.requests.group(id)] += tokens;
  }
  void finished(RequestId id, const std::string& how, const When& now_s) {
    around_.expect(id, {Stage::dispatched, Stage::answered}, "was dispatched and has not finished");
    const bool is_completed = outcome_of(how) == Outcome::completed;
    if (is_completed) around_.note_completed(id);
    band_.ended(id, is_completed, around_.advance(now_s));
    around_.set_stage(id, Stage::over);
  }

 private:
  class Permitted final : public gateway::FairnessPolicy::MayStart {
   public:
    Permitted(std::size_t tenants, bool all) : allowed_(tenants, all) {}
    void allow(std::size_t tenant) { allowed_[tenant] = true; }
    bool operator()(TenantId flow) const override { return allowed_[flow.index()]; }
    bool of_class(std::size_t i, RequestId) const override { return allowed_[i]; }
    bool any() const override {
      return std::find(allowed_.begin(), allowed_.end(), true) != allowed_.end();
    }

   private:
    std::vector<bool> allowed_;
  };

  static const gateway::Band& band_in(const Settings& settings) {
    return settings.as<Simulation>().gateway.bands.front();
  }
  static signals::Needs needs_in(const Settings& settings) {
    const gateway::Fairness& fairness = band_in(settings).fairness;
    const gateway::Cost* cost = gateway::cost_of(fairness);
    return signals::needs_of(fairness) | (cost ? cost->needs() : signals::Needs{});
  }
  static std::vector<std::size_t> classes_of(const Surroundings& around) {
    std::vector<std::size_t> all(around.requests.slo_classes.size());
    for (std::size_t k = 0; k < all.size(); ++k) all[k] = k;
    return all;
  }
  const std::vector<std::int64_t>& emitted(Time) override { return emitted_; }

  Surroundings around_;
  gateway::BandQueues band_;
  std::vector<std::int64_t> emitted_;  // tokens, by group of requests
};

class UsageLimit : public Single {
 public:
  UsageLimit(const Settings& settings, std::uint64_t)
      : num_bands_(settings.as<Simulation>().gateway.bands.size()),
        ceilings_(make_ceilings(settings.as<Simulation>().gateway)) {}

  std::vector<double> decide(double saturation) {
    if (ceilings_.follow_saturation()) ceilings_.follow(saturation);
    std::vector<double> all;
    for (std::size_t i = 0; i < num_bands_; ++i) all.push_back(ceilings_.of(i));
    return all;
  }

 private:
  static gateway::Ceilings make_ceilings(const gateway::Gateway& config) {
    std::vector<std::int64_t> priorities;
    std::vector<double> configured;
    for (const gateway::Band& band : gateway::by_priority(config.bands)) {
      priorities.push_back(band.priority);
      configured.push_back(band.ceiling);
    }
    return {std::visit([&](const auto& c) { return make(c, priorities); }, config.usage_limit),
            std::move(configured), config.dispatch != gateway::Dispatch::all};
  }

  std::size_t num_bands_;
  gateway::Ceilings ceilings_;
};

class Controller : public Single {
 public:
  Controller(const Settings& settings, std::uint64_t seed)
      : around_(settings, seed, {}), governor_(make_governor(around_)) {}

  /// The action, and the limit that is then in force.
  std::pair<std::string_view, double> decide(const gateway::Reading& reading, const When& now_s) {
    const gateway::ControlStep step = governor_.tick(reading, around_.advance(now_s));
    return {sim::name_of(step.action), step.limit};
  }
  void sample(double value, const std::optional<double>& dispatched_s, const When& now_s) {
    const Time now = around_.advance(now_s);
    governor_.sample(value, dispatched_s ? time_of("dispatched_s", *dispatched_s) : now, now);
  }
  double limit() { return governor_.limit(); }
  void resize(double limit) { governor_.resize(limit); }

 private:
  // Precondition: a limit can be moved, as `validate` sees to.
  static gateway::Governor make_governor(const Surroundings& around) {
    const gateway::Gateway& config = around.simulation.gateway;
    double limit = 0;
    for (const gateway::Limit& policy : config.limit) {
      const auto setting =
          gateway::make_limit(policy, around.requests.tenants, around.requests.slo_classes)
              ->setting();
      if (!setting) continue;
      limit = *setting;
      break;
    }
    return {config.guard, config.controller, limit, around.seed};
  }

  Surroundings around_;
  gateway::Governor governor_;
};

// ---- router -------------------------------------------------------------------------------------

class Router : public Single {
 public:
  Router(const Settings& settings, std::uint64_t seed)
      : around_(settings, seed, router::needs_of(settings.as<Simulation>().router)),
        policy_(router::make_policy(around_.simulation.router,
                                    around_.simulation.prefix_index.block_size_tokens)) {}

  /// The request's id, the instance (−1: the request is rejected), its rank, the scores.
  std::tuple<RequestId, std::int64_t, std::optional<std::size_t>, std::vector<double>> decide(
      const Offer& offer, const When& now_s, const Scripts& scripts, bool learn) {
    const Time now = around_.advance(now_s);
    around_.script(scripts);
    const RequestId id = around_.add(offer);
    const signals::RequestView request = around_.request(id);
    sim::Draws draws(around_.seed, sim::Stream::router, request.row());
    const InstanceId chosen = policy_->pick(request, around_.view(), now, draws);
    if (chosen == router::kNoInstance) return {id, -1, std::nullopt, {}};
    const auto scores = policy_->scores();
    std::vector<double> copied(scores.begin(), scores.end());
    if (learn) {
      policy_->learn(request, chosen);
      around_.note_admitted(id);
      around_.note_sent(id, chosen);
      around_.set_stage(id, Stage::dispatched);
    }
    return {id, static_cast<std::int64_t>(chosen.index()), policy_->picked_rank(),
            std::move(copied)};
  }
  void first_token(RequestId id, const When& now_s) {
    around_.expect(id, {Stage::dispatched}, "was routed and awaits its first token");
    around_.advance(now_s);
    around_.note_first_token(id);
    policy_->first_token(id, around_.sent_to(id));
    around_.set_stage(id, Stage::answered);
  }
  void finished(RequestId id, const When& now_s) {
    around_.expect(id, {Stage::dispatched, Stage::answered}, "was routed and has not finished");
    around_.advance(now_s);
    around_.note_ended(id);
    policy_->finished(id, around_.sent_to(id));
    around_.set_stage(id, Stage::over);
  }

 private:
  Surroundings around_;
  std::unique_ptr<router::RoutingPolicy> policy_;
};

/// What a scorer and a filter have in common: a part of a weighted router, the first of its list.
class RouterPart {
 public:
  RouterPart(const Settings& settings, std::uint64_t seed)
      : around(settings, seed, router::needs_of(settings.as<Simulation>().router)) {}

  RequestId add(const Offer& offer, const When& now_s, const Scripts& scripts) {
    around.advance(now_s);
    around.script(scripts);
    return around.add(offer);
  }
  /// The request goes there.
  InstanceId send(RequestId id, std::int64_t instance) {
    around.expect(id, {Stage::offered}, "has not been sent to an instance yet");
    const InstanceId to = around.instance(instance);
    around.note_admitted(id);
    around.note_sent(id, to);
    around.set_stage(id, Stage::dispatched);
    return to;
  }
  const router::Weighted& config() const {
    return std::get<router::Weighted>(around.simulation.router);
  }

  Surroundings around;
};

class Scorer : public Single {
 public:
  Scorer(const Settings& settings, std::uint64_t seed)
      : part_(settings, seed),
        scorer_(std::visit([](const auto& c) { return make(c); }, part_.config().scorers.front())) {
  }

  std::pair<RequestId, std::vector<double>> decide(const Offer& offer, const When& now_s,
                                                   const Scripts& scripts) {
    const RequestId id = part_.add(offer, now_s, scripts);
    std::vector<double> scores(part_.around.num_instances());
    scorer_->score(part_.around.request(id), part_.around.view(), scores);
    return {id, std::move(scores)};
  }
  void learn(RequestId id, std::int64_t instance) {
    const InstanceId to = part_.send(id, instance);
    scorer_->learn(part_.around.request(id), to);
  }

 private:
  RouterPart part_;
  std::unique_ptr<router::Scorer> scorer_;
};

class Filter : public Single {
 public:
  Filter(const Settings& settings, std::uint64_t seed)
      : part_(settings, seed),
        filter_(std::visit([](const auto& c) { return make(c); }, part_.config().filters.front())) {
  }

  /// The request's id, and the instances that are kept.
  std::pair<RequestId, std::vector<std::size_t>> decide(const Offer& offer, const When& now_s,
                                                        const Scripts& scripts) {
    const RequestId id = part_.add(offer, now_s, scripts);
    const signals::RequestView request = part_.around.request(id);
    sim::Draws draws(part_.around.seed, sim::Stream::router, request.row());
    std::vector<bool> kept(part_.around.num_instances(), true);
    filter_->keep(request, part_.around.view(), draws, kept);
    std::vector<std::size_t> instances;
    for (std::size_t i = 0; i < kept.size(); ++i) {
      if (kept[i]) instances.push_back(i);
    }
    return {id, std::move(instances)};
  }
  void learn(RequestId id, std::int64_t instance) { part_.send(id, instance); }

 private:
  RouterPart part_;
  std::unique_ptr<router::Filter> filter_;
};

class Picker : public Single {
 public:
  Picker(const Settings& settings, std::uint64_t seed)
      : seed_(seed),
        picker_(std::visit([](const auto& c) { return make(c); },
                           std::get<router::Weighted>(settings.as<Simulation>().router).picker)) {}

  std::size_t decide(const std::vector<double>& scores) {
    if (scores.empty()) refuse("scores", "[]", "must hold at least one score");
    for (std::size_t i = 0; i < scores.size(); ++i) {
      if (scores[i] >= 0 && !std::isinf(scores[i])) continue;
      refuse(sim::index_path("scores", i), sim::to_text(scores[i]), "must be >= 0 and finite");
    }
    sim::Draws draws(seed_, sim::Stream::router, num_decisions_++);
    return picker_->pick(scores, draws);
  }

 private:
  std::uint64_t seed_;
  std::unique_ptr<router::Picker> picker_;
  std::uint64_t num_decisions_ = 0;
};

// ---- signals -----------------------------------------------------------------------------------

// The values of a rank that a load event has, as Python passes them: the fields of its `RankLoad`.
using Load = std::tuple<std::optional<std::int64_t>,   // active_decode_blocks
                        std::optional<std::int64_t>,   // kv_used_blocks
                        std::optional<std::int64_t>,   // kv_total_blocks
                        std::optional<std::int64_t>,   // active_prefill_tokens
                        std::optional<std::int64_t>>;  // max_num_batched_tokens

/// The busy monitor of a worker.
class BusyMonitor : public Single {
 public:
  BusyMonitor(const Settings& settings, std::uint64_t)
      : workers_(settings.as<Simulation>().busy_monitor, 1) {}

  void report(const std::vector<Load>& ranks) {
    std::vector<signals::RankLoad> loads;
    for (const auto& [decode, used, total, prefill, batch] : ranks) {
      loads.push_back({decode, used, total, prefill, batch});
    }
    workers_.report(InstanceId{0}, loads);
  }
  void mark_overloaded(double now_s) {
    workers_.mark_overloaded(InstanceId{0}, time_of("now_s", now_s));
  }
  bool is_busy(double now_s) { return workers_.is_busy(InstanceId{0}, time_of("now_s", now_s)); }

 private:
  signals::BusyWorkers workers_;
};

/// Which requests in flight are evicted.
class Eviction : public Single {
 public:
  Eviction(const Settings& settings, std::uint64_t)
      : evictor_(settings.as<Simulation>().gateway.eviction) {}

  RequestId dispatched(std::int64_t priority) {
    const RequestId id{count_++};
    evictor_.dispatched(id, priority);
    ++in_flight_;
    return id;
  }
  void ended(RequestId id, const When& now_s) {
    evictor_.ended(id, now_s ? time_of("now_s", *now_s) : Time{0});
    --in_flight_;
  }
  std::vector<RequestId> relieve(double saturation, double ceiling, std::int64_t below,
                                 const When& now_s) {
    std::vector<RequestId> victims;
    evictor_.relieve(
        {.saturation = saturation, .ceiling = ceiling, .in_flight = in_flight_, .below = below},
        now_s ? time_of("now_s", *now_s) : Time{0}, victims);
    return victims;
  }

 private:
  gateway::Evictor evictor_;
  std::size_t count_ = 0;
  std::int64_t in_flight_ = 0;
};

// Every class is made of a whole simulation, in which the policy stands in its place.
template <class Policy>
py::class_<Policy> bind(py::module_& module, const char* name, const char* doc) {
  return py::class_<Policy>(module, name, doc)
      .def(py::init<const Settings&, std::uint64_t>(), py::arg("simulation"), py::arg("seed"));
}

void bind_gateway(py::module_& module) {
  const auto id = py::arg("request_id");
  const auto offer = py::arg("request");
  const auto now_s = py::arg("now_s");
  bind<Admission>(module, "Admission", "The admission chain of a gateway.")
      .def("decide", alone("decide", &Admission::decide), offer, now_s, py::arg("instances"),
           py::arg("has_workers"), py::arg("next_choice"), py::arg("commit"))
      .def("dispatched", alone("dispatched", &Admission::dispatched), id, py::arg("instance"),
           now_s)
      .def("first_token", alone("first_token", &Admission::first_token), id, now_s)
      .def("finished", alone("finished", &Admission::finished), id, py::arg("outcome"), now_s);
  bind<Limit>(module, "Limit", "The limits of a gateway.")
      .def("offer", alone("offer", &Limit::offer), offer, now_s)
      .def("decide", alone("decide", &Limit::decide), id, py::arg("ceiling"), py::arg("instances"),
           now_s)
      .def("started", alone("started", &Limit::started), id)
      .def("first_token", alone("first_token", &Limit::first_token), id)
      .def("ended", alone("ended", &Limit::ended), id)
      .def("resize", alone("resize", &Limit::resize), py::arg("setting"))
      .def("set_workers", alone("set_workers", &Limit::set_workers), py::arg("workers"));
  bind<Fairness>(module, "Fairness", "The queues of a band, and whose turn it is.")
      .def("joined", alone("joined", &Fairness::joined), offer, py::arg("instances"), now_s)
      .def("decide", alone("decide", &Fairness::decide), py::arg("may_start"), now_s)
      .def("left", alone("left", &Fairness::left), id, now_s)
      .def("first_token", alone("first_token", &Fairness::first_token), id, now_s)
      .def("emitted", alone("emitted", &Fairness::add_tokens), id, py::arg("tokens"))
      .def("finished", alone("finished", &Fairness::finished), id, py::arg("outcome"), now_s);
  bind<UsageLimit>(module, "UsageLimit", "The ceilings of a gateway's bands.")
      .def("decide", alone("decide", &UsageLimit::decide), py::arg("saturation"));
  bind<Controller>(module, "Controller", "The controller of a limit, and its guard.")
      .def(
          "decide",
          [decide = alone("decide", &Controller::decide)](
              Controller& self, double value, std::int64_t samples, std::int64_t in_flight,
              std::int64_t queued, std::int64_t max_in_flight, std::int64_t shed,
              double kv_utilization, double hit_rate, const When& when) {
            return decide(self,
                          {.value = value,
                           .samples = samples,
                           .in_flight = in_flight,
                           .queued = queued,
                           .max_in_flight = max_in_flight,
                           .shed = shed,
                           .kv_utilization = kv_utilization,
                           .hit_rate = hit_rate},
                          when);
          },
          py::arg("value"), py::arg("samples"), py::arg("in_flight"), py::arg("queued"),
          py::arg("max_in_flight"), py::arg("shed"), py::arg("kv_utilization"), py::arg("hit_rate"),
          now_s)
      .def("sample", alone("sample", &Controller::sample), py::arg("value"),
           py::arg("dispatched_s"), now_s)
      .def_property_readonly("limit", alone("limit", &Controller::limit))
      .def("resize", alone("resize", &Controller::resize), py::arg("limit"));
}

void bind_router(py::module_& module) {
  const auto id = py::arg("request_id");
  const auto offer = py::arg("request");
  const auto now_s = py::arg("now_s");
  const auto instances = py::arg("instances");
  bind<Router>(module, "Router", "A routing policy.")
      .def("decide", alone("decide", &Router::decide), offer, now_s, instances, py::arg("learn"))
      .def("first_token", alone("first_token", &Router::first_token), id, now_s)
      .def("finished", alone("finished", &Router::finished), id, now_s);
  bind<Scorer>(module, "Scorer", "A scorer of a weighted router.")
      .def("decide", alone("decide", &Scorer::decide), offer, now_s, instances)
      .def("learn", alone("learn", &Scorer::learn), id, py::arg("instance"));
  bind<Filter>(module, "Filter", "A filter of a weighted router.")
      .def("decide", alone("decide", &Filter::decide), offer, now_s, instances)
      .def("learn", alone("learn", &Filter::learn), id, py::arg("instance"));
  bind<Picker>(module, "Picker", "The picker of a weighted router.")
      .def("decide", alone("decide", &Picker::decide), py::arg("scores"));
  bind<BusyMonitor>(module, "BusyMonitor", "The busy monitor of a worker.")
      .def("report", alone("report", &BusyMonitor::report), py::arg("ranks"))
      .def("mark_overloaded", alone("mark_overloaded", &BusyMonitor::mark_overloaded),
           py::arg("now_s"))
      .def("is_busy", alone("is_busy", &BusyMonitor::is_busy), py::arg("now_s"));
  bind<Eviction>(module, "Eviction", "The eviction of requests in flight.")
      .def("dispatched", alone("dispatched", &Eviction::dispatched), py::arg("priority"))
      .def("ended", alone("ended", &Eviction::ended), id, now_s)
      .def("relieve", alone("relieve", &Eviction::relieve), py::arg("saturation"),
           py::arg("ceiling"), py::arg("below"), now_s);
}

}  // namespace

}  // namespace testing

void bind_testing(py::module_& module) {
  testing::bind_gateway(module);
  testing::bind_router(module);
  bind_deciders(module);
}

}  // namespace spillway::bindings
