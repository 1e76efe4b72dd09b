#include "gateway/admission/rate_limit.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <deque>

#include "gateway/admission/admission.h"
#include "gateway/admission/names.h"
#include "gateway/admission/per_request.h"
#include "gateway/counted_output.h"
#include "sim/names.h"

namespace spillway::gateway {

using sim::Time;

namespace {

enum class Cause : std::uint8_t { requests, parallel, tokens };

bool has_tenant(RateKey key) {
  return key == RateKey::tenant || key == RateKey::tenant_and_class ||
         key == RateKey::tenant_and_model;
}
bool has_class(RateKey key) {
  return key == RateKey::slo_class || key == RateKey::tenant_and_class;
}
bool has_model(RateKey key) { return key == RateKey::model || key == RateKey::tenant_and_model; }

struct KeyLimits {
  std::optional<std::int64_t> requests, tokens, parallel;
};

/// Requests and tokens that were charged at an instant.
struct Charge {
  Time at;
  std::int64_t requests = 0;
  std::int64_t tokens = 0;
};

/// What a key has used; whole numbers, unless the window is a bucket.
struct KeyUse {
  double requests = 0;  // in the window
  double tokens = 0;    // in the window; settling an older reservation may make it negative
  std::int64_t parallel = 0;
  Time window_end{0};  // of a bucket: when it was last refilled
  // Only if the window slides:
  std::deque<Charge> entries;
  std::uint64_t num_forgotten = 0;
};

class RateLimitPolicy final : public AdmissionPolicy {
 public:
  RateLimitPolicy(const RateLimit& config, const Scope& scope)
      : config_(config),
        window_(sim::from_seconds(config.window_s)),
        num_classes_(scope.slo_classes.size()),
        num_models_(scope.models.size()),
        limits_(limits_of(config, scope)),
        uses_(limits_.size()),
        reserved_output_(num_classes_, config.reserved_output_tokens) {
    const sim::NameIndex classes(scope.slo_classes, &workload::SloClass::name);
    for (const ClassOutput& own : config.reserved_of_class) {
      const std::size_t at = classes.of(own.slo_class);
      if (at < num_classes_) reserved_output_[at] = own.output_tokens;
    }
  }

  Verdict decide(const signals::RequestView& request, const signals::View&, Time now,
                 sim::Draws&) override {
    const std::size_t key = key_of(request);
    const KeyLimits& limits = limits_[key];
    KeyUse& use = current(key, now);
    if (limits.requests && lacks(use.requests, 1, *limits.requests)) {
      return refuse(Cause::requests);
    }
    if (config_.counts_refused) charge(use, 1, 0, now);
    if (limits.parallel && use.parallel >= *limits.parallel) return refuse(Cause::parallel);
    if (!limits.tokens) return Verdict::admit();
    return lacks(use.tokens, needed_tokens(request), *limits.tokens) ? refuse(Cause::tokens)
                                                                     : Verdict::admit();
  }

  void commit(const signals::RequestView& request, Time now) override {
    const std::size_t key = key_of(request);
    KeyUse& use = current(key, now);
    const bool reserves = config_.charge == RateCharge::reserve && limits_[key].tokens;
    const std::int64_t tokens = reserves ? reservation(request) : 0;
    if (!config_.counts_refused || tokens != 0) {
      charge(use, config_.counts_refused ? 0 : 1, tokens, now);
    }
    ++use.parallel;
    held_[request.id()] = {.tokens = tokens, .entry = use.num_forgotten + use.entries.size() - 1};
  }

  void finished(const signals::RequestView& request, workload::Outcome outcome, Time now) override {
    const std::size_t key = key_of(request);
    KeyUse& use = current(key, now);
    --use.parallel;
    if (!limits_[key].tokens) return;
    const bool is_answered = outcome == workload::Outcome::completed;
    const std::int64_t used = is_answered ? counted(request, request.answered_tokens()) : 0;
    const Held held = held_[request.id()];
    if (config_.window != RateWindow::sliding) {
      use.tokens += static_cast<double>(used - held.tokens);
    } else if (config_.charge == RateCharge::at_end) {
      if (used > 0) charge(use, 0, used, now);
    } else if (held.entry >= use.num_forgotten) {
      use.entries[held.entry - use.num_forgotten].tokens += used - held.tokens;
      use.tokens += static_cast<double>(used - held.tokens);
    }
  }

  Time retry_after(const signals::RequestView& request, Time now) override {
    if (config_.retry_after == RetryAfter::none) return Time{0};
    if (config_.retry_after == RetryAfter::window) return window_;
    if (refused_for_ == Cause::parallel) return Time{0};
    const std::size_t key = key_of(request);
    const KeyUse& use = current(key, now);
    if (config_.window == RateWindow::bucket) {
      const KeyLimits& limits = limits_[key];
      return refused_for_ == Cause::requests
                 ? until_refilled(use.requests, 1, limits.requests.value_or(0))
                 : until_refilled(use.tokens, needed_tokens(request), limits.tokens.value_or(0));
    }
    if (config_.window != RateWindow::sliding) return use.window_end - now;
    return use.entries.empty() ? window_ : use.entries.front().at + window_ - now;
  }

  void change(const Admission& to, const Scope& scope, Time now) override {
    const auto& config = std::get<RateLimit>(to);
    if (config_.window == RateWindow::bucket) {  // refilled until now as before
      for (std::size_t key = 0; key < uses_.size(); ++key) current(key, now);
    }
    limits_ = limits_of(config, scope);
    config_ = config;
  }

 private:
  struct Held {
    std::int64_t tokens = 0;
    std::uint64_t entry = 0;  // its number, if the window slides
  };

  static std::vector<KeyLimits> limits_of(const RateLimit& config, const Scope& scope) {
    const std::size_t num_tenants = has_tenant(config.key) ? scope.tenants.size() : 1;
    const std::size_t num_others = has_class(config.key)   ? scope.slo_classes.size()
                                   : has_model(config.key) ? scope.models.size()
                                                           : 1;
    std::vector<KeyLimits> all;
    for (std::size_t i = 0; i < num_tenants; ++i) {
      for (std::size_t k = 0; k < num_others; ++k) {
        const auto own = std::ranges::find_if(config.own, [&](const KeyRate& rate) {
          return (!rate.tenant || *rate.tenant == scope.tenants[i].name) &&
                 (!rate.slo_class || *rate.slo_class == scope.slo_classes[k].name) &&
                 (!rate.model || *rate.model == scope.models[k]);
        });
        all.push_back(own == config.own.end()
                          ? KeyLimits{config.max_requests, config.max_tokens, config.max_parallel}
                          : KeyLimits{own->max_requests, own->max_tokens, own->max_parallel});
      }
    }
    return all;
  }

  std::size_t key_of(const signals::RequestView& request) const {
    switch (config_.key) {
      case RateKey::tenant:
        return request.tenant();
      case RateKey::slo_class:
        return request.slo_class();
      case RateKey::tenant_and_class:
        return request.tenant() * num_classes_ + request.slo_class();
      case RateKey::model:
        return request.model_index();
      case RateKey::tenant_and_model:
        return request.tenant() * num_models_ + request.model_index();
      case RateKey::gateway:
        break;
    }
    return 0;
  }

  std::int64_t counted(const signals::RequestView& request, std::int64_t output) const {
    return (config_.tokens == RateTokens::output ? 0 : request.input_tokens()) +
           (config_.tokens == RateTokens::prompt ? 0 : output);
  }
  std::int64_t reservation(const signals::RequestView& request) const {
    return counted(request, counted_output(request, config_.output_length,
                                           reserved_output_[request.slo_class()]));
  }

  /// The tokens that a key must have left for a request.
  std::int64_t needed_tokens(const signals::RequestView& request) const {
    return config_.charge == RateCharge::reserve ? reservation(request) : 1;
  }

  static bool lacks(double used, std::int64_t needed, std::int64_t limit) {
    return used + static_cast<double>(needed) > static_cast<double>(limit);
  }

  /// Until a bucket holds what is needed, or all that it can hold.
  Time until_refilled(double used, std::int64_t needed, std::int64_t limit) const {
    if (limit == 0) return window_;
    const double missing = used + static_cast<double>(std::min(needed, limit) - limit);
    const double span_ns = missing * static_cast<double>(window_.ns) / static_cast<double>(limit);
    return Time{static_cast<std::int64_t>(std::ceil(span_ns))};
  }

  double refilled(double used, std::optional<std::int64_t> limit, Time elapsed) const {
    if (!limit) return 0;
    const double returned = static_cast<double>(elapsed.ns) * static_cast<double>(*limit) /
                            static_cast<double>(window_.ns);
    return std::max(0.0, used - returned);
  }

  Verdict refuse(Cause cause) {
    refused_for_ = cause;
    return Verdict::reject(static_cast<std::uint8_t>(cause));
  }

  // What the key has used in the window of `now`.
  KeyUse& current(std::size_t key, Time now) {
    KeyUse& use = uses_[key];
    if (config_.window == RateWindow::sliding) {
      while (!use.entries.empty() && use.entries.front().at + window_ <= now) {
        use.requests -= static_cast<double>(use.entries.front().requests);
        use.tokens -= static_cast<double>(use.entries.front().tokens);
        use.entries.pop_front();
        ++use.num_forgotten;
      }
    } else if (config_.window == RateWindow::bucket) {
      const Time elapsed = now - use.window_end;
      use.requests = refilled(use.requests, limits_[key].requests, elapsed);
      use.tokens = refilled(use.tokens, limits_[key].tokens, elapsed);
      use.window_end = now;
    } else if (now >= use.window_end) {
      const Time begin =
          config_.window == RateWindow::aligned ? Time{now.ns / window_.ns * window_.ns} : now;
      use.window_end = begin + window_;
      use.requests = 0;
      use.tokens = 0;
    }
    return use;
  }

  void charge(KeyUse& use, std::int64_t requests, std::int64_t tokens, Time now) const {
    use.requests += static_cast<double>(requests);
    use.tokens += static_cast<double>(tokens);
    if (config_.window == RateWindow::sliding) use.entries.push_back({now, requests, tokens});
  }

  RateLimit config_;
  Time window_;
  std::size_t num_classes_;
  std::size_t num_models_;
  std::vector<KeyLimits> limits_;              // by key
  std::vector<KeyUse> uses_;                   // by key
  std::vector<std::int64_t> reserved_output_;  // by class
  Cause refused_for_ = Cause::requests;        // at the last refusal
  PerRequest<Held> held_;
};

}  // namespace

void RateLimit::validate(const std::string& path, std::vector<sim::Violation>& out) const {
  check_unique_names(reserved_of_class, &ClassOutput::slo_class, "slo_class",
                     sim::join_path(path, "reserved_of_class"), out);
  for (std::size_t i = 0; i < own.size(); ++i) {
    const auto check = [&](const std::optional<std::string>& name, const char* field, bool is_of) {
      if (!name || is_of) return;
      out.push_back({sim::join_path(sim::index_path(sim::join_path(path, "own"), i), field),
                     "'" + *name + "'", "must be unset, because it is not part of the key"});
    };
    check(own[i].tenant, "tenant", has_tenant(key));
    check(own[i].slo_class, "slo_class", has_class(key));
    check(own[i].model, "model", has_model(key));
  }
}

std::unique_ptr<AdmissionPolicy> make(const RateLimit& config, const Scope& scope) {
  return std::make_unique<RateLimitPolicy>(config, scope);
}

}  // namespace spillway::gateway
