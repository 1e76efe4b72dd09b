#include "router/deciders/fixed.h"

#include "router/deciders/decider.h"

namespace spillway::router {

namespace {

class FixedDecider final : public Decider {
 public:
  explicit FixedDecider(bool is_local) : is_local_(is_local) {}
  bool is_local(const LegsQuestion&) override { return is_local_; }

 private:
  bool is_local_;
};

}  // namespace

std::unique_ptr<Decider> make(const AlwaysRemote&) { return std::make_unique<FixedDecider>(false); }
std::unique_ptr<Decider> make(const NeverRemote&) { return std::make_unique<FixedDecider>(true); }

}  // namespace spillway::router
