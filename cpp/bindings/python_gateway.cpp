// Policies of the gateway that are written in Python.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/python_policy.h"
#include "gateway/admission/admission.h"
#include "gateway/controller/controller.h"
#include "gateway/fairness/fairness.h"
#include "gateway/limit/limit.h"
#include "gateway/usage_limit/usage_limit.h"

namespace spillway::bindings {

namespace {

// ---- admission ----------------------------------------------------------------------------------

// Names of the reasons for which a Python policy may reject, in order.
constexpr std::array<std::string_view, 3> kReasons{"saturated", "rate_limited", "unservable"};
static_assert(kReasons.size() == gateway::PythonAdmission::reasons.size());

class PythonAdmissionPolicy final : public gateway::AdmissionPolicy {
 public:
  PythonAdmissionPolicy(const Maker& maker, std::span<const workload::Tenant> tenants)
      : held_(maker, names_of(tenants)) {}

  gateway::Verdict decide(const signals::RequestView& request, const signals::View& view, Time now,
                          sim::Draws& draws) override {
    using gateway::Verdict;
    const InterpreterLock lock;
    const py::object result = decide_(request, view, now, &draws);
    if (const auto admits = flag_in(result)) return *admits ? Verdict::admit() : Verdict::reject();
    if (py::hasattr(result, "reason")) {
      const py::object reason = result.attr("reason");
      for (std::size_t i = 0; i < kReasons.size(); ++i) {
        if (reason.equal(py::str(std::string(kReasons[i])))) {
          return Verdict::reject(static_cast<std::uint8_t>(i));
        }
      }
    }
    decide_.refuse(result, "True, False or Reject(reason)", now, &request);
  }
  void commit(const signals::RequestView& request, Time now) override {
    inform(commit_, request, now);
  }
  void dispatched(const signals::RequestView& request, Time now) override {
    inform(dispatched_, request, now);
  }
  void first_token(const signals::RequestView& request, sim::InstanceId, Time now) override {
    inform(first_token_, request, now);
  }
  void finished(const signals::RequestView& request, workload::Outcome, Time now) override {
    inform(finished_, request, now);
  }

 private:
  static void inform(Method& method, const signals::RequestView& request, Time now) {
    if (!method) return;
    const InterpreterLock lock;
    method.about(request, now, py::float_(sim::to_seconds(now)));
  }

  Held held_;
  Method decide_{held_, "decide", true}, commit_{held_, "commit"}, dispatched_{held_, "dispatched"},
      first_token_{held_, "first_token"}, finished_{held_, "finished"};
};

// ---- limits -------------------------------------------------------------------------------------

class PythonLimitPolicy final : public gateway::LimitPolicy {
 public:
  PythonLimitPolicy(const Maker& maker, std::span<const workload::Tenant> tenants)
      : held_(maker, names_of(tenants)) {}

  bool is_open(const gateway::Occasion& occasion) const override {
    return !saturation_ || *saturation(occasion) < occasion.ceiling;
  }
  bool may_start(const signals::RequestView& request,
                 const gateway::Occasion& occasion) const override {
    if (!is_open(occasion)) return false;
    const InterpreterLock lock;
    const py::object result = may_start_(request, *occasion.view, occasion.now);
    if (const auto answer = flag_in(result)) return *answer;
    may_start_.refuse(result, "True or False", occasion.now, &request);
  }
  void started(const signals::RequestView& request) override { inform(started_, request); }
  void first_token(const signals::RequestView& request) override { inform(first_token_, request); }
  void ended(const signals::RequestView& request) override { inform(ended_, request); }

  std::optional<double> saturation(const gateway::Occasion& occasion) const override {
    if (!saturation_) return std::nullopt;
    const InterpreterLock lock;
    const py::object result = saturation_(*occasion.view, occasion.now);
    if (const auto answer = amount_in(result)) return answer;
    saturation_.refuse(result, "a finite number >= 0", occasion.now);
  }
  std::optional<double> setting() const override {
    if (!setting_ || !resize_) return std::nullopt;
    const InterpreterLock lock;
    const py::object result = setting_.call(sim::kUnset);
    if (const auto answer = amount_in(result)) return answer;
    setting_.refuse(result, "a finite number >= 0", sim::kUnset);
  }
  void resize(double setting) override {
    const InterpreterLock lock;
    resize_.call(sim::kUnset, py::float_(setting));
  }
  bool follows_signals() const override { return true; }
  bool depends_on_request() const override { return true; }
  bool frees_at_first_token() const override { return static_cast<bool>(first_token_); }

 private:
  static void inform(Method& method, const signals::RequestView& request) {
    if (!method) return;
    const InterpreterLock lock;
    method.about(request, sim::kUnset);
  }

  Held held_;
  mutable Method may_start_{held_, "may_start", true}, saturation_{held_, "saturation"},
      setting_{held_, "setting"};
  Method resize_{held_, "resize"}, started_{held_, "started"}, first_token_{held_, "first_token"},
      ended_{held_, "ended"};
};

class PythonUsageLimitPolicy final : public gateway::UsageLimitPolicy {
 public:
  PythonUsageLimitPolicy(const Maker& maker, std::span<const std::int64_t> priorities)
      : held_(maker), priorities_(py::tuple(priorities.size())) {
    for (std::size_t i = 0; i < priorities.size(); ++i) priorities_[i] = priorities[i];
  }
  PythonUsageLimitPolicy(const PythonUsageLimitPolicy&) = delete;
  PythonUsageLimitPolicy& operator=(const PythonUsageLimitPolicy&) = delete;
  ~PythonUsageLimitPolicy() override { release(priorities_); }

  bool follows_saturation() const override { return true; }
  void set_ceilings(double saturation, std::span<double> ceilings) override {
    const InterpreterLock lock;
    const py::object result = ceilings_.call(sim::kUnset, py::float_(saturation), priorities_);
    if (read_numbers(result, ceilings)) return;
    ceilings_.refuse(result,
                     "an array of " + std::to_string(ceilings.size()) +
                         " numbers, one per band, none of them NaN",
                     sim::kUnset);
  }

 private:
  Held held_;
  py::tuple priorities_;
  Method ceilings_{held_, "ceilings", true};
};

// ---- controller ---------------------------------------------------------------------------------

class PythonControllerPolicy final : public gateway::ControllerPolicy {
 public:
  explicit PythonControllerPolicy(const Maker& maker) : held_(maker) {}

  void sample(double value, Time dispatched, Time now) override {
    if (!sample_) return;
    const InterpreterLock lock;
    sample_.call(now, py::float_(value), py::float_(sim::to_seconds(dispatched)),
                 py::float_(sim::to_seconds(now)));
  }
  double tick(const gateway::Reading& reading, double limit, Time now) override {
    const InterpreterLock lock;
    const py::object result =
        tick_.call(now, py::cast(reading), py::float_(limit), py::float_(sim::to_seconds(now)));
    if (const auto wanted = amount_in(result)) return *wanted;
    tick_.refuse(result, "the limit, a finite number >= 0", now);
  }

 private:
  Held held_;
  Method tick_{held_, "tick", true}, sample_{held_, "sample"};
};

// ---- fairness -----------------------------------------------------------------------------------

/// The queues of the present call, by tenant.
class CallQueues {
 public:
  CallQueues(std::vector<double> weights) : weights_(std::move(weights)) {}

  void set(const gateway::TenantQueues* queues, const gateway::FairnessPolicy::MayStart* may_start,
           Time now) {
    queues_ = queues;
    may_start_ = may_start;
    now_ = now;
    lengths_.forget();
    head_costs_.forget();
    head_waits_.forget();
    head_serials_.forget();
    startable_.forget();
  }
  std::size_t size() const { return get().num_flows(); }
  double now_s() const {
    get();
    return sim::to_seconds(now_);
  }
  py::array weights() {
    return of_weights_.read(size(), [&](std::size_t i) { return weights_.at(i); });
  }
  py::array lengths() {
    return lengths_.read(size(), [&](std::size_t i) { return get().length(sim::TenantId{i}); });
  }
  py::array head_costs() {
    return head_costs_.read(size(), [&](std::size_t i) {
      return of_head(i, [](const auto& head) { return head.cost; });
    });
  }
  py::array head_waits_s() {
    return head_waits_.read(size(), [&](std::size_t i) {
      return of_head(i, [&](const auto& head) { return sim::to_seconds(now_ - head.entered); });
    });
  }
  py::array head_serials() {
    return head_serials_.read(size(), [&](std::size_t i) {
      const sim::TenantId flow{i};
      return get().length(flow) == 0 ? 0 : get().head(flow).serial;
    });
  }
  py::array may_start() {
    get();
    if (may_start_ == nullptr) throw sim::UsageError("only next sees which tenants may start");
    return startable_.read(size(), [&](std::size_t i) {
      const sim::TenantId flow{i};
      return get().length(flow) > 0 && (*may_start_)(flow);
    });
  }

 private:
  const gateway::TenantQueues& get() const {
    if (queues_ == nullptr) refuse_late();
    return *queues_;
  }
  double of_head(std::size_t i, const auto& value) const {
    const sim::TenantId flow{i};
    if (get().length(flow) == 0) return std::numeric_limits<double>::quiet_NaN();
    return value(get().head(flow));
  }

  std::vector<double> weights_;
  const gateway::TenantQueues* queues_ = nullptr;
  const gateway::FairnessPolicy::MayStart* may_start_ = nullptr;
  Time now_{0};
  SignalColumn<double> of_weights_, head_costs_, head_waits_;
  SignalColumn<std::int64_t> lengths_, head_serials_;
  SignalColumn<bool> startable_;
};

class PythonFairnessPolicy final : public gateway::FairnessPolicy {
 public:
  PythonFairnessPolicy(const Maker& maker, std::span<const double> weights)
      : held_(maker),
        queues_(
            py::cast(CallQueues({weights.begin(), weights.end()}), py::return_value_policy::move)),
        call_queues_(py::cast<CallQueues&>(queues_)) {}
  PythonFairnessPolicy(const PythonFairnessPolicy&) = delete;
  PythonFairnessPolicy& operator=(const PythonFairnessPolicy&) = delete;
  ~PythonFairnessPolicy() override { release(queues_); }

  void joined(sim::TenantId flow, const gateway::TenantQueues& queues, Time now) override {
    inform(joined_, flow, queues, now);
  }
  void left(sim::TenantId flow, const gateway::TenantQueues& queues, Time now) override {
    inform(left_, flow, queues, now);
  }
  std::optional<sim::TenantId> next(const gateway::TenantQueues& queues, const MayStart& may_start,
                                    Time now) override {
    if (!may_start.any()) return std::nullopt;
    if (std::ranges::none_of(queues.backlogged(),
                             [&](sim::TenantId flow) { return may_start(flow); })) {
      return std::nullopt;
    }
    const InterpreterLock lock;
    const Open open(call_queues_, queues, &may_start, now);
    const py::object result = next_.call(now, queues_);
    if (result.is_none()) return std::nullopt;
    if (const auto chosen = position_in(result, queues.num_flows())) {
      const sim::TenantId flow{*chosen};
      if (queues.length(flow) > 0 && may_start(flow)) return flow;
    }
    next_.refuse(result, "None, or the position of a tenant that may start", now);
  }
  void dispatched(sim::TenantId flow, const gateway::TenantQueues& queues, Time now) override {
    inform(dispatched_, flow, queues, now);
  }
  void charge(sim::TenantId flow, double amount, Time now) override {
    if (!charge_) return;
    const InterpreterLock lock;
    charge_.call(now, py::int_(flow.index()), py::float_(amount), py::float_(sim::to_seconds(now)));
  }

 private:
  // Lets Python see the queues during a call.
  class Open {
   public:
    Open(CallQueues& seen, const gateway::TenantQueues& queues, const MayStart* may_start, Time now)
        : seen_(seen) {
      seen_.set(&queues, may_start, now);
    }
    Open(const Open&) = delete;
    Open& operator=(const Open&) = delete;
    ~Open() { seen_.set(nullptr, nullptr, Time{0}); }

   private:
    CallQueues& seen_;
  };

  void inform(Method& method, sim::TenantId flow, const gateway::TenantQueues& queues, Time now) {
    if (!method) return;
    const InterpreterLock lock;
    const Open open(call_queues_, queues, nullptr, now);
    method.call(now, py::int_(flow.index()), queues_);
  }

  Held held_;
  py::object queues_;
  CallQueues& call_queues_;
  Method next_{held_, "next", true}, joined_{held_, "joined"}, left_{held_, "left"},
      dispatched_{held_, "dispatched"}, charge_{held_, "charge"};
};

}  // namespace

// ---- adapters -----------------------------------------------------------------------------------

template <>
std::unique_ptr<gateway::AdmissionPolicy> adapt(const Maker& maker, const gateway::Scope& scope) {
  return std::make_unique<PythonAdmissionPolicy>(maker, scope.tenants);
}
template <>
std::unique_ptr<gateway::FairnessPolicy> adapt(const Maker& maker,
                                               std::span<const double> weights) {
  return std::make_unique<PythonFairnessPolicy>(maker, weights);
}
template <>
std::unique_ptr<gateway::LimitPolicy> adapt(const Maker& maker,
                                            std::span<const workload::Tenant> tenants) {
  return std::make_unique<PythonLimitPolicy>(maker, tenants);
}
template <>
std::unique_ptr<gateway::UsageLimitPolicy> adapt(const Maker& maker,
                                                 std::span<const std::int64_t> priorities) {
  return std::make_unique<PythonUsageLimitPolicy>(maker, priorities);
}
template <>
std::unique_ptr<gateway::ControllerPolicy> adapt(const Maker& maker) {
  return std::make_unique<PythonControllerPolicy>(maker);
}

void bind_gateway_calls(py::module_& module) {
  using gateway::Reading;
  py::class_<Reading>(module, "Reading", "What a controller reads at a tick.")
      .def_readonly("value", &Reading::value, "The sensor's aggregate, in the unit of its source.")
      .def_readonly("samples", &Reading::samples, "Number of samples in the value.")
      .def_readonly("in_flight", &Reading::in_flight, "Requests in flight now.")
      .def_readonly("queued", &Reading::queued, "Requests in the queues now.")
      .def_readonly("max_in_flight", &Reading::max_in_flight, "Most in flight since the last tick.")
      .def_readonly("shed", &Reading::shed,
                    "Requests rejected, evicted or expired since the last tick.")
      .def_readonly("kv_utilization", &Reading::kv_utilization, "Mean over the instances, 0 to 1.")
      .def_readonly("hit_rate", &Reading::hit_rate, "Of prefix blocks, mean over the instances.")
      .def_readonly("has_demand", &Reading::has_demand,
                    "Whether there is demand, by the guard's definition.")
      .def_readonly("since_last_tick_s", &Reading::since_last_tick_s, "In seconds.");
  py::class_<CallQueues>(
      module, "Queues",
      "The queues of a band, valid during a call only. Arrays have one value per "
      "tenant and are read-only.")
      .def("__len__", &CallQueues::size)
      .def_property_readonly("now_s", &CallQueues::now_s, "The present instant, in seconds.")
      .def_property_readonly("weights", &CallQueues::weights, "Weights of the tenants.")
      .def_property_readonly("lengths", &CallQueues::lengths, "Numbers of queued requests.")
      .def_property_readonly("head_costs", &CallQueues::head_costs,
                             "What dispatching the head is charged at once; NaN: no head.")
      .def_property_readonly("head_waits_s", &CallQueues::head_waits_s,
                             "How long the head has waited, in seconds; NaN: no head.")
      .def_property_readonly("head_serials", &CallQueues::head_serials,
                             "Order in which the heads have joined, from 1; 0: no head.")
      .def_property_readonly("may_start", &CallQueues::may_start,
                             "Whether there is a head that the limits let start; only in next.");
}

}  // namespace spillway::bindings
