// Policies of the router, and of the instances, that are written in Python.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/python_policy.h"
#include "instance/scheduler/scheduler.h"
#include "router/deciders/decider.h"
#include "router/filters/filter.h"
#include "router/pickers/picker.h"
#include "router/policy.h"
#include "router/scorers/scorer.h"

namespace spillway::bindings {

namespace {

std::string a_candidate(std::size_t count) {
  return "the position of a candidate, >= 0 and < " + std::to_string(count);
}

class PythonRoutingPolicy final : public router::RoutingPolicy {
 public:
  explicit PythonRoutingPolicy(const Maker& maker) : held_(maker) {}

  sim::InstanceId pick(const signals::RequestView& request, const signals::View& view, Time now,
                       sim::Draws& draws) override {
    const InterpreterLock lock;
    const py::object result = pick_(request, view, now, &draws);
    if (const auto chosen = position_in(result, view.size())) return view.id(*chosen);
    pick_.refuse(result, a_candidate(view.size()), now, &request);
  }

 private:
  Held held_;
  Method pick_{held_, "pick", true};
};

class PythonFilter final : public router::Filter {
 public:
  explicit PythonFilter(const Maker& maker) : held_(maker) {}

  void keep(const signals::RequestView& request, const signals::View& view, sim::Draws& draws,
            std::vector<bool>& kept) const override {
    const InterpreterLock lock;
    const py::object result = keep_(request, view, view.now(), &draws);
    const auto flags = py::array_t<bool, py::array::c_style>::ensure(result);
    if (!flags) PyErr_Clear();
    const bool has_flags =
        flags && py::array::ensure(result).dtype().kind() == 'b' && flags.ndim() == 1;
    if (!has_flags || static_cast<std::size_t>(flags.size()) != kept.size()) {
      keep_.refuse(result,
                   "an array of " + std::to_string(kept.size()) + " bools, one per candidate",
                   view.now(), &request);
    }
    router::keep_fitting(kept, [&](std::size_t i) { return flags.data()[i]; });
  }

 private:
  Held held_;
  mutable Method keep_{held_, "keep", true};
};

class PythonScorer final : public router::Scorer {
 public:
  explicit PythonScorer(const Maker& maker) : held_(maker) {}

  void score(const signals::RequestView& request, const signals::View& view,
             std::span<double> scores) override {
    const InterpreterLock lock;
    const py::object result = score_(request, view, view.now());
    if (read_numbers(result, scores)) return;
    score_.refuse(result,
                  "an array of " + std::to_string(scores.size()) +
                      " numbers, one per candidate, none of them NaN",
                  view.now(), &request);
  }

 private:
  Held held_;
  Method score_{held_, "score", true};
};

class PythonPicker final : public router::Picker {
 public:
  explicit PythonPicker(const Maker& maker)
      : held_(maker),
        rng_(py::cast(sim::Draws{0, sim::Stream::router, 0}, py::return_value_policy::move)),
        draws_(py::cast<sim::Draws&>(rng_)) {}
  PythonPicker(const PythonPicker&) = delete;
  PythonPicker& operator=(const PythonPicker&) = delete;
  ~PythonPicker() override { release(rng_); }

  std::size_t pick(std::span<const double> scores, sim::Draws& draws) const override {
    const InterpreterLock lock;
    scores_.forget();
    const py::array& seen = scores_.read(scores.size(), [&](std::size_t i) { return scores[i]; });
    draws_ = draws;
    const py::object result = choose_.call(sim::kUnset, seen, rng_);
    draws = draws_;
    if (const auto chosen = position_in(result, scores.size())) return *chosen;
    choose_.refuse(result, a_candidate(scores.size()), sim::kUnset);
  }

 private:
  Held held_;
  py::object rng_;
  sim::Draws& draws_;
  mutable SignalColumn<double> scores_;
  mutable Method choose_{held_, "choose", true};
};

/// The legs of the present call.
class CallLegs {
 public:
  void set(const router::LegsQuestion* question) { question_ = question; }
  const router::LegsQuestion& get() const {
    if (question_ == nullptr) refuse_late();
    return *question_;
  }

 private:
  const router::LegsQuestion* question_ = nullptr;
};

class PythonDecider final : public router::Decider {
 public:
  explicit PythonDecider(const Maker& maker)
      : held_(maker),
        legs_(py::cast(CallLegs(), py::return_value_policy::move)),
        call_legs_(py::cast<CallLegs&>(legs_)) {}
  PythonDecider(const PythonDecider&) = delete;
  PythonDecider& operator=(const PythonDecider&) = delete;
  ~PythonDecider() override { release(legs_); }

  bool is_local(const router::LegsQuestion& question) override {
    const InterpreterLock lock;
    const Open open(call_legs_, question);
    const py::object result = is_local_.about(*question.request, question.now, legs_);
    if (const auto answer = flag_in(result)) return *answer;
    is_local_.refuse(result, "True or False", question.now, question.request);
  }

 private:
  // Shows the legs for the time of a call.
  class Open {
   public:
    Open(CallLegs& seen, const router::LegsQuestion& question) : seen_(seen) {
      seen_.set(&question);
    }
    Open(const Open&) = delete;
    Open& operator=(const Open&) = delete;
    ~Open() { seen_.set(nullptr); }

   private:
    CallLegs& seen_;
  };

  Held held_;
  py::object legs_;
  CallLegs& call_legs_;
  Method is_local_{held_, "is_local", true};
};

class PythonScheduler final : public instance::SchedulerPolicy {
 public:
  PythonScheduler(const Maker& maker, std::span<const workload::Tenant> tenants)
      : held_(maker, names_of(tenants)) {}

  std::int64_t rank(sim::RequestId id, const workload::RequestTable& requests) const override {
    const InterpreterLock lock;
    const signals::RequestView request(requests, id);
    const py::object result = rank_.about(request, sim::kUnset);
    if (PyIndex_Check(result.ptr()) != 0) {
      const py::int_ whole = py::reinterpret_steal<py::int_>(PyNumber_Index(result.ptr()));
      int overflow = 0;
      const long long rank = PyLong_AsLongLongAndOverflow(whole.ptr(), &overflow);
      if (overflow == 0) return rank;
    }
    rank_.refuse(result, "a whole number of at most 64 bits", sim::kUnset, &request);
  }

 private:
  Held held_;
  mutable Method rank_{held_, "rank", true};
};

}  // namespace

template <>
std::unique_ptr<router::RoutingPolicy> adapt(const Maker& maker) {
  return std::make_unique<PythonRoutingPolicy>(maker);
}
template <>
std::unique_ptr<router::Filter> adapt(const Maker& maker) {
  return std::make_unique<PythonFilter>(maker);
}
template <>
std::unique_ptr<router::Scorer> adapt(const Maker& maker) {
  return std::make_unique<PythonScorer>(maker);
}
template <>
std::unique_ptr<router::Picker> adapt(const Maker& maker) {
  return std::make_unique<PythonPicker>(maker);
}
template <>
std::unique_ptr<router::Decider> adapt(const Maker& maker) {
  return std::make_unique<PythonDecider>(maker);
}
template <>
std::unique_ptr<instance::SchedulerPolicy> adapt(const Maker& maker,
                                                 const workload::RequestTable& requests) {
  return std::make_unique<PythonScheduler>(maker, requests.tenants);
}

void bind_router_calls(py::module_& module) {
  using router::LegsQuestion;
  using Choice = LegsQuestion::Choice;
  py::class_<CallLegs> legs(
      module, "Legs",
      "The instances that the routers of the decode and of the prefill pool would choose now; "
      "valid during a call only. Loads are the gateway's own counts of what it sent. Without an "
      "instance its numbers are 0.");
  legs.def_property_readonly(
          "now_s", [](const CallLegs& self) { return sim::to_seconds(self.get().now); },
          "The instant of the decision, in seconds.")
      .def_property_readonly(
          "prompt_tokens", [](const CallLegs& self) { return self.get().prompt_tokens; },
          "Length of the prompt, with the output of instances that the request has lost.")
      .def_property_readonly(
          "prompt_blocks", [](const CallLegs& self) { return self.get().prompt_blocks; },
          "KV blocks of the prompt.");
  const auto bind_choice = [&](const std::string& pool, auto choice) {
    legs.def_property_readonly((pool + "_instance").c_str(),
                               [choice](const CallLegs& self) -> std::optional<std::int64_t> {
                                 const auto& chosen = self.get().*choice;
                                 if (!chosen) return std::nullopt;
                                 return static_cast<std::int64_t>(chosen->instance.index());
                               },
                               "Its number in the fleet; None: the router would choose none.");
    const auto number = [&](const char* name, auto field, const char* doc) {
      legs.def_property_readonly((pool + name).c_str(),
                                 [choice, field](const CallLegs& self) -> std::int64_t {
                                   const auto& chosen = self.get().*choice;
                                   return chosen ? field(*chosen) : 0;
                                 },
                                 doc);
    };
    number(
        "_cached_tokens", [](const Choice& of) { return of.cached_tokens; },
        "Tokens of the prompt that were sent there before, by the gateway's own record.");
    number(
        "_pending_tokens", [](const Choice& of) { return of.pending_tokens; },
        "Prompt tokens of the prefill legs in flight there, without cached ones.");
    number(
        "_blocks_in_flight", [](const Choice& of) { return of.blocks_in_flight; },
        "Blocks of the prompts in flight there that it continues or serves wholly.");
    number(
        "_max_num_batched_tokens", [](const Choice& of) { return of.max_num_batched_tokens; },
        "Most tokens of a step.");
    number(
        "_num_kv_blocks", [](const Choice& of) { return of.num_kv_blocks.value_or(0); },
        "KV blocks in total.");
  };
  bind_choice("decode", &LegsQuestion::decode);
  bind_choice("prefill", &LegsQuestion::prefill);
}

}  // namespace spillway::bindings
