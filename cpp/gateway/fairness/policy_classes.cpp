#include "gateway/fairness/policy_classes.h"

#include <algorithm>

#include "gateway/fairness/fairness.h"
#include "gateway/fairness/policy_queue.h"
#include "sim/schema/codec.h"
#include "sim/value.h"

namespace spillway::gateway {

using sim::RequestId;
using sim::TenantId;
using sim::Time;

namespace {

class PolicyClassesPolicy final : public FairnessPolicy {
 public:
  explicit PolicyClassesPolicy(const PolicyClasses& config)
      : config_(config), queue_(config.classes) {}

  bool has_room(const signals::RequestView& request, const workload::SloClass& slo_class,
                const signals::View& view) override {
    const std::size_t to = class_of(asked_by(slo_class), uncached_tokens(request, view));
    return queue_.has_room(to, static_cast<std::int64_t>(view.size()));
  }

  void entered(const signals::RequestView& request, const workload::SloClass& slo_class,
               const signals::View& view, Time now) override {
    const PolicyRequest& asked = asked_by(slo_class);
    const std::int64_t uncached = uncached_tokens(request, view);
    const std::size_t to = class_of(asked, uncached);
    if (class_of_.size() <= request.id().index()) class_of_.resize(2 * request.id().index() + 1);
    class_of_[request.id().index()] = to;
    queue_.push(to, {.request = request.id(),
                     .input_tokens = request.input_tokens(),
                     .cached_tokens = request.input_tokens() - uncached,
                     .strict_priority = asked.strict_priority,
                     .priority_jump_s = asked.priority_jump_s,
                     .now = now});
  }

  bool chooses_requests() const override { return true; }
  std::optional<RequestId> next_request(const MayStart& may_start) override {
    return queue_.pop([&](std::size_t i, RequestId head) { return may_start.of_class(i, head); });
  }
  void removed(RequestId request) override { queue_.remove(class_of_[request.index()], request); }

  void joined(TenantId, const TenantQueues&, Time) override {}
  std::optional<TenantId> next(const TenantQueues&, const MayStart&, Time) override {
    return std::nullopt;
  }

 private:
  const PolicyRequest& asked_by(const workload::SloClass& slo_class) const {
    const auto known =
        std::ranges::find(config_.requests, slo_class.name, &PolicyRequest::slo_class);
    return known == config_.requests.end() ? unlisted_ : *known;
  }
  // Of the instance that holds the most of the prompt.
  static std::int64_t uncached_tokens(const signals::RequestView& request,
                                      const signals::View& view) {
    std::int64_t cached = 0;
    for (std::size_t i = 0; i < view.size(); ++i) {
      cached =
          std::max(cached, view.cached_blocks(request, i) * view.capacity(i).block_size_tokens);
    }
    return std::max<std::int64_t>(0, request.input_tokens() - cached);
  }
  std::size_t class_of(const PolicyRequest& asked, std::int64_t uncached_tokens) const {
    const std::string& family = is_known(asked.family) ? asked.family : unlisted_.family;
    std::optional<std::size_t> best;
    for (std::size_t i = 0; i < config_.classes.size(); ++i) {
      const PolicyClass& its = config_.classes[i];
      if (its.family != family) continue;
      if (!best || is_better(its, config_.classes[*best], uncached_tokens)) best = i;
    }
    return best.value_or(0);
  }
  bool is_known(const std::string& family) const {
    return std::ranges::find(config_.classes, family, &PolicyClass::family) !=
           config_.classes.end();
  }
  static bool is_better(const PolicyClass& one, const PolicyClass& other, std::int64_t tokens) {
    const bool is_reached = one.min_uncached_tokens <= tokens;
    if (is_reached != (other.min_uncached_tokens <= tokens)) return is_reached;
    return is_reached == (one.min_uncached_tokens > other.min_uncached_tokens) &&
           one.min_uncached_tokens != other.min_uncached_tokens;
  }

  PolicyClasses config_;
  PolicyRequest unlisted_{.family = config_.classes.front().family};
  PolicyQueue queue_;
  std::vector<std::size_t> class_of_;  // by request
};

}  // namespace

void PolicyClasses::validate(const std::string& path, std::vector<sim::Violation>& out) const {
  if (classes.empty()) {
    out.push_back({sim::join_path(path, "classes"), "[]", "must hold at least one class"});
  }
  for (std::size_t i = 0; i < classes.size(); ++i) {
    const std::string at = sim::index_path(sim::join_path(path, "classes"), i);
    for (std::size_t j = 0; j < i; ++j) {
      if (classes[i].name == classes[j].name) {
        out.push_back({at + ".name", "'" + classes[i].name + "'",
                       "must differ from the names of the other classes"});
      }
      if (classes[i].family == classes[j].family &&
          classes[i].min_uncached_tokens == classes[j].min_uncached_tokens) {
        out.push_back({at + ".min_uncached_tokens", std::to_string(classes[i].min_uncached_tokens),
                       "must differ from those of the other classes of its family"});
      }
    }
  }
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const std::string at = sim::index_path(sim::join_path(path, "requests"), i);
    for (std::size_t j = 0; j < i; ++j) {
      if (requests[i].slo_class != requests[j].slo_class) continue;
      out.push_back({at + ".slo_class", "'" + requests[i].slo_class + "'", "must not occur twice"});
    }
  }
}

std::unique_ptr<FairnessPolicy> make(const PolicyClasses& config, std::span<const double>) {
  return std::make_unique<PolicyClassesPolicy>(config);
}

}  // namespace spillway::gateway
