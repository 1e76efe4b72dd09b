#include "gateway/eviction.h"

#include <algorithm>
#include <cmath>

namespace spillway::gateway {

using sim::RequestId;
using sim::Time;

Evictor::Evictor(const Eviction& config)
    : max_victims_(config.max_victims),
      grace_(sim::from_seconds(config.grace_s)),
      timeout_(sim::from_seconds(config.timeout_s)) {}

void Evictor::dispatched(RequestId id, std::int64_t priority) {
  if (!is_on() || priority >= 0) return;
  if (rows_.size() <= id.index()) rows_.resize(std::max(id.index() + 1, 2 * rows_.size()));
  rows_[id.index()] = {Standing::candidate, priority, --next_serial_};
  candidates_.insert({priority, next_serial_, id});
}

void Evictor::ended(RequestId id, Time now) {
  if (id.index() >= rows_.size()) return;
  Row& row = rows_[id.index()];
  if (row.standing == Standing::candidate) candidates_.erase({row.priority, row.serial, id});
  if (row.standing == Standing::victim && --awaited_ == 0) next_decision_ = now + grace_;
  row.standing = Standing::none;
}

void Evictor::relieve(const Pressure& pressure, Time now, std::vector<RequestId>& victims) {
  if (now < next_decision_ || pressure.in_flight == 0 || pressure.saturation <= 0) return;
  const double credit = pressure.saturation / static_cast<double>(pressure.in_flight);
  const double pending = static_cast<double>(awaited_) * credit;
  const double wanted = std::ceil((pressure.saturation - pressure.ceiling - pending) / credit);
  std::int64_t left =
      std::clamp<std::int64_t>(static_cast<std::int64_t>(std::min(wanted, 1e9)), 1, max_victims_);
  for (; left > 0 && !candidates_.empty(); --left) {
    const auto first = candidates_.begin();
    if (first->priority >= pressure.below) break;
    rows_[first->id.index()].standing = Standing::victim;
    victims.push_back(first->id);
    ++awaited_;
    next_decision_ = now + timeout_;
    candidates_.erase(first);
  }
}

}  // namespace spillway::gateway
