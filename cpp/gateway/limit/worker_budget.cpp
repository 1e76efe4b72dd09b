#include "gateway/limit/worker_budget.h"

#include "gateway/limit/limit.h"

namespace spillway::gateway {

namespace {

class WorkerBudgetPolicy final : public LimitPolicy {
 public:
  explicit WorkerBudgetPolicy(const WorkerBudget& config)
      : cap_(config.cap_per_worker),
        workers_(config.workers.value_or(0)),
        follows_fleet_(!config.workers),
        resize_(config.resize) {
    apply();
  }

  bool is_open(const Occasion&) const override {
    return resize_ == Resize::corrected ? in_flight_ < budget_ : free_ > 0;
  }
  bool may_start(const signals::RequestView&, const Occasion& occasion) const override {
    return is_open(occasion);
  }
  void started(const signals::RequestView&) override {
    --free_;
    ++in_flight_;
  }
  void ended(const signals::RequestView&) override {
    pending_shrink_ > 0 ? --pending_shrink_ : ++free_;
    --in_flight_;
  }
  std::optional<double> setting() const override { return static_cast<double>(cap_); }
  std::optional<double> permits() const override { return static_cast<double>(budget_); }
  void resize(double cap) override {
    cap_ = static_cast<std::int64_t>(cap);
    apply();
  }
  void change(const Limit& to, std::span<const workload::Tenant>) override {
    cap_ = std::get<WorkerBudget>(to).cap_per_worker;
    apply();
  }
  void set_workers(std::int64_t workers) override {
    if (!follows_fleet_) return;
    workers_ = workers;
    apply();
  }

 private:
  // Growth adds permits immediately, without netting a pending shrink. Only `verbatim` counts
  // permits.
  void apply() {
    const std::int64_t wanted = cap_ * workers_;
    (wanted > budget_ ? free_ : pending_shrink_) +=
        wanted > budget_ ? wanted - budget_ : budget_ - wanted;
    budget_ = wanted;
  }

  std::int64_t cap_;
  std::int64_t workers_;
  bool follows_fleet_;
  Resize resize_;
  std::int64_t budget_ = 0;
  std::int64_t free_ = 0;
  std::int64_t pending_shrink_ = 0;
  std::int64_t in_flight_ = 0;
};

}  // namespace

std::unique_ptr<LimitPolicy> make(const WorkerBudget& config) {
  return std::make_unique<WorkerBudgetPolicy>(config);
}

}  // namespace spillway::gateway
