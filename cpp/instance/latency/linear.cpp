#include "instance/latency/linear.h"

#include "instance/latency/latency.h"

namespace spillway::instance {

namespace {

class LinearModel final : public LatencyModel {
 public:
  explicit LinearModel(const Linear& config) : c_(config) {}

  LatencyBasis basis() const override {
    return c_.beta_context_us != 0 ? LatencyBasis::context : LatencyBasis::batch;
  }
  double step_us(const StepLoad& load) const override {
    // The order of evaluation is part of the contract: other orders round differently.
    double us = c_.beta0_us + c_.beta_prefill_us * static_cast<double>(load.prefill_tokens);
    us = us + c_.beta_decode_us * static_cast<double>(load.decode_requests);
    if (c_.beta_context_us != 0) {
      us = us + c_.beta_context_us * static_cast<double>(load.context_tokens);
    }
    return us;
  }
  double entry_us(std::int64_t input_tokens) const override {
    return c_.alpha0_us + c_.alpha_input_us * static_cast<double>(input_tokens);
  }
  double output_us() const override { return c_.alpha_output_us; }

 private:
  Linear c_;
};

}  // namespace

std::unique_ptr<LatencyModel> make(const Linear& config, std::uint64_t, sim::InstanceId) {
  return std::make_unique<LinearModel>(config);
}

const std::vector<std::pair<std::string_view, Linear>>& Linear::presets() {
  // All but the last were measured on H100.
  static const std::vector<std::pair<std::string_view, Linear>> table{
      // meta-llama/llama-3.1-8b-instruct, TP 2, vLLM 0.8.4; 132139 KV blocks
      {"llama-3.1-8b-h100-tp2",
       {.alpha0_us = 1601.350510688092,
        .alpha_input_us = 3.512476196805965,
        .alpha_output_us = 1805.5430360826988,
        .beta0_us = 6910.420479880494,
        .beta_prefill_us = 17.67057489844186,
        .beta_decode_us = 2.8377471109943855}},
      // meta-llama/llama-3.1-8b-instruct, TP 1, vLLM 0.8.4; 29205 KV blocks
      {"llama-3.1-8b-h100-tp1",
       {.alpha0_us = 232.46191091038054,
        .alpha_input_us = 1.752360364195244,
        .alpha_output_us = 3357.4400353290152,
        .beta0_us = 5752.705191348184,
        .beta_prefill_us = 17.25086436834028,
        .beta_decode_us = 5.999143920128404}},
      // meta-llama/llama-3.1-8b-instruct, TP 1, vLLM 0.11.0; 29205 KV blocks
      {"llama-3.1-8b-h100-tp1-vllm-0.11.0",
       {.alpha0_us = 10326.268121600151,
        .alpha_input_us = 0,
        .alpha_output_us = 0,
        .beta0_us = 6472.007648778123,
        .beta_prefill_us = 19.79721387814611,
        .beta_decode_us = 304.4021040302657}},
      // meta-llama/llama-3.1-8b-instruct, TP 4, vLLM 0.8.4; 559190 KV blocks
      {"llama-3.1-8b-h100-tp4",
       {.alpha0_us = 34.38988572325434,
        .alpha_input_us = 2.1870952105216817,
        .alpha_output_us = 6001.151321705148,
        .beta0_us = 41.80647673754272,
        .beta_prefill_us = 11.861039406797376,
        .beta_decode_us = 5.9099565324485255}},
      // ibm-granite/granite-3.1-8b-instruct, TP 4, vLLM 0.8.4; 446923 KV blocks
      {"granite-3.1-8b-h100-tp4",
       {.alpha0_us = 3478.111658834035,
        .alpha_input_us = 1.6888352615821622,
        .alpha_output_us = 1013.5705389395669,
        .beta0_us = 6147.712298704921,
        .beta_prefill_us = 8.669891071607832,
        .beta_decode_us = 6.139207633313169}},
      // meta-llama/llama-3.3-70b-instruct, TP 4, vLLM 0.8.4; 128273 KV blocks
      {"llama-3.3-70b-h100-tp4",
       {.alpha0_us = 2597.3171308592136,
        .alpha_input_us = 9.950912552989394,
        .alpha_output_us = 11511.44254521247,
        .beta0_us = 12601.271149123822,
        .beta_prefill_us = 76.42284100369776,
        .beta_decode_us = 66.84396200500741}},
      // microsoft/phi-4, TP 2, vLLM 0.8.4; 76476 KV blocks
      {"phi-4-h100-tp2",
       {.alpha0_us = 6440.71358709443,
        .alpha_input_us = 9.459834652506629,
        .alpha_output_us = 16785.247518077897,
        .beta0_us = 574.3193908443218,
        .beta_prefill_us = 19.880200585495377,
        .beta_decode_us = 8.689234395416412}},
      // mistralai/mistral-small-24b-instruct-2501, TP 2, vLLM 0.8.4; 81996 KV blocks
      {"mistral-small-24b-h100-tp2",
       {.alpha0_us = 10475.040522450588,
        .alpha_input_us = 11.283072984834146,
        .alpha_output_us = 2541.795724185129,
        .beta0_us = 2464.1052052186587,
        .beta_prefill_us = 12.644719287600402,
        .beta_decode_us = 509.1952938574658}},
      // mistralai/mixtral-8x7b-instruct-v0.1, TP 2, vLLM 0.8.4; 58377 KV blocks
      {"mixtral-8x7b-h100-tp2",
       {.alpha0_us = 14183.211469689128,
        .alpha_input_us = 0.05035849522569347,
        .alpha_output_us = 29675.091979055112,
        .beta0_us = 12616.330563372463,
        .beta_prefill_us = 29.98066344907465,
        .beta_decode_us = 29.72539500682795}},
      // qwen/qwen2.5-7b-instruct, TP 4, vLLM 0.8.4; 1281766 KV blocks
      {"qwen2.5-7b-h100-tp4",
       {.alpha0_us = 6748.565706303843,
        .alpha_input_us = 1.60068623289796,
        .alpha_output_us = 1952.6809484593186,
        .beta0_us = 2206.931356893263,
        .beta_prefill_us = 16.799213648645086,
        .beta_decode_us = 218.0953180138298}},
      // codellama/codellama-34b-instruct-hf, TP 1, vLLM 0.8.4; 2537 KV blocks
      {"codellama-34b-h100-tp1",
       {.alpha0_us = 13450.510995636703,
        .alpha_input_us = 0.041813767451373045,
        .alpha_output_us = 0,
        .beta0_us = 26595.2781995357,
        .beta_prefill_us = 96.28441960829817,
        .beta_decode_us = 56.58626882402723}},
      // openai/gpt-oss-20b, TP 1, vLLM 0.10.1.1; 302690 KV blocks
      {"gpt-oss-20b-h100-tp1",
       {.alpha0_us = 2575.297973825855,
        .alpha_input_us = 1.6942915710418411,
        .alpha_output_us = 19152.051890144965,
        .beta0_us = 7344.860029214045,
        .beta_prefill_us = 60.64650677940525,
        .beta_decode_us = 3.679647756509839}},
      // meta-llama/llama-4-scout-17b-16e-instruct, TP 4, vLLM 0.8.4; 116925 KV blocks
      {"llama-4-scout-17b-16e-h100-tp4",
       {.alpha0_us = 877.9690629431279,
        .alpha_input_us = 11.668167572161003,
        .alpha_output_us = 65573.40313335409,
        .beta0_us = 34857.64418010274,
        .beta_prefill_us = 18.288456091859253,
        .beta_decode_us = 90.4252805260737}},
      // qwen/qwen3-14b, TP 1, vLLM 0.11.0; 17600 KV blocks
      {"qwen3-14b-h100-tp1",
       {.alpha0_us = 8888.089034078324,
        .alpha_input_us = 0.18488961143592303,
        .alpha_output_us = 0,
        .beta0_us = 13578.186662538783,
        .beta_prefill_us = 39.44465647189146,
        .beta_decode_us = 27.3227753326911}},
      // qwen/qwen2.5-3b-instruct, TP 1, vLLM 0.11.0; 117925 KV blocks
      {"qwen2.5-3b-h100-tp1",
       {.alpha0_us = 3142.6414696246693,
        .alpha_input_us = 0.10526412493912439,
        .alpha_output_us = 0,
        .beta0_us = 4795.791416550158,
        .beta_prefill_us = 9.448739636724016,
        .beta_decode_us = 35.63358858584016}},
      // qwen/qwen2.5-7b-instruct, TP 1, vLLM 0.19.1; 2400 KV blocks. Fitted to published
      // throughputs (tools/fit_l4.py), which contain no information on the entry delay.
      {"qwen2.5-7b-l4",
       {.alpha0_us = 0,
        .alpha_input_us = 0,
        .alpha_output_us = 0,
        .beta0_us = 55'400,
        .beta_prefill_us = 345,
        .beta_decode_us = 285,
        .beta_context_us = 0.191}},
  };
  return table;
}

}  // namespace spillway::instance
