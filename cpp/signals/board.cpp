#include "signals/board.h"

#include <utility>

namespace spillway::signals {

Board::Board(const Signals& transport, std::vector<Probe*> probes, Scrapes* scrapes,
             std::unique_ptr<PrefixIndex> index)
    : probes_(std::move(probes)), scrapes_(scrapes), index_(std::move(index)) {
  if (const auto* on_read = std::get_if<OnRead>(&transport)) {
    period_ = sim::from_seconds(on_read->period_s);
    readings_.resize(probes_.size());
  }
}

View Board::view(std::span<const std::int32_t> in_flight, sim::Time now) {
  for (std::size_t i = 0; i < readings_.size(); ++i) {
    if (now - readings_[i].measured >= period_) readings_[i] = probes_[i]->read(now);
  }
  return {probes_, readings_, scrapes_, in_flight, index_.get(), now};
}

}  // namespace spillway::signals
