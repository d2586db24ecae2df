// Steps of optimizers on float32 parameters, which resnet_recipes/optim/native/steps.py calls through ctypes. Memory
// bandwidth is the limit, so every value is read and written as seldom as possible. Any number of threads and every
// instruction set give the same bits.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <system_error>
#include <thread>
#include <vector>

#define EXPORTED extern "C" __attribute__((visibility("default")))

// For loops that a compiler vectorises by itself: it makes a version for each instruction set, and the loader of the
// library picks one.
#if defined(__x86_64__) && defined(__GLIBC__)
#define FOR_EACH_PROCESSOR __attribute__((target_clones("avx2", "default")))
#else
#define FOR_EACH_PROCESSOR
#endif

// One parameter; steps.py mirrors this struct.
struct Parameter {
    float *weight;
    const float *grad;
    float *mean;        // momentum, or Adam's average of gradients; null: none
    float *square;      // LAMB: the average of squared gradients
    float *count;       // LAMB: the number of steps so far, one value
    int64_t size;
};

// The tensors of a GradScaler; null without one.
struct Scaler {
    const float *scale, *overflow;

    bool skips() const { return overflow && *overflow; }
    float inverse() const { return scale ? 1 / *scale : 1; }
};

struct Sgd {
    double rate, kept, decay, momentum, nesterov;
};

struct Lars {
    double rate, decay, momentum, trust, eps;
};

struct Lamb {
    double rate, decay, beta1, beta2, eps;
};

namespace {

constexpr int64_t BLOCK = 2048;     // values whose sum of squares is taken in float32
constexpr int LANES = 16;           // partial sums of a block: a fixed order of additions that vector units can follow

// Sums of squares of whole tensors.
struct Sum {
    double total = 0;
    float lanes[LANES] = {};

    void end_block() {
        for (float &lane : lanes) {
            total += lane;
            lane = 0;
        }
    }
};

float narrow(double number) { return static_cast<float>(number); }

FOR_EACH_PROCESSOR void sgd(const Parameter &p, float unscale, const Sgd &s) {
    float *__restrict weight = p.weight, *__restrict mean = p.mean;
    const float *__restrict grad = p.grad;
    const float rate = narrow(s.rate), kept = narrow(s.kept), decay = narrow(s.decay), momentum = narrow(s.momentum);
    if (!mean) {
        for (int64_t i = 0; i < p.size; i++) {
            weight[i] = kept * weight[i] - rate * (grad[i] * unscale + decay * weight[i]);
        }
    } else if (s.nesterov) {
        for (int64_t i = 0; i < p.size; i++) {
            float change = grad[i] * unscale + decay * weight[i];
            mean[i] = momentum * mean[i] + change;
            weight[i] = kept * weight[i] - rate * (change + momentum * mean[i]);
        }
    } else {
        for (int64_t i = 0; i < p.size; i++) {
            mean[i] = momentum * mean[i] + (grad[i] * unscale + decay * weight[i]);
            weight[i] = kept * weight[i] - rate * mean[i];
        }
    }
}

FOR_EACH_PROCESSOR void add_squares(const float *__restrict values, int64_t size, float *__restrict lanes) {
    int64_t i = 0;
    for (; i + LANES <= size; i += LANES) {
        for (int lane = 0; lane < LANES; lane++) {
            lanes[lane] += values[i + lane] * values[i + lane];
        }
    }
    for (int lane = 0; i < size; i++, lane++) {
        lanes[lane] += values[i] * values[i];
    }
}

FOR_EACH_PROCESSOR void lars(float *__restrict weight, const float *__restrict grad, float *__restrict mean,
                             int64_t size, float grad_rate, float weight_rate, float momentum) {
    for (int64_t i = 0; i < size; i++) {
        mean[i] = momentum * mean[i] + (grad_rate * grad[i] + weight_rate * weight[i]);
        weight[i] -= mean[i];
    }
}

// What LAMB multiplies with in step `count`.
struct Coefficients {
    float unscale, mean_kept, mean_new, mean_scale, square_kept, square_new, root_scale, eps, decay;

    Coefficients(const Lamb &s, float unscale, double count)
        : unscale(unscale), mean_kept(narrow(s.beta1)), mean_new(narrow(1 - s.beta1)),
          mean_scale(narrow(1 / (1 - std::pow(s.beta1, count)))), square_kept(narrow(s.beta2)),
          square_new(narrow(1 - s.beta2)), root_scale(narrow(1 / std::sqrt(1 - std::pow(s.beta2, count)))),
          eps(narrow(s.eps)), decay(narrow(s.decay)) {}
};

// Adam's averages, and the direction of LAMB's step.
FOR_EACH_PROCESSOR void directions(const float *__restrict weight, const float *__restrict grad, float *__restrict mean,
                                   float *__restrict square, int64_t size, const Coefficients &c,
                                   float *__restrict direction) {
    for (int64_t i = 0; i < size; i++) {
        float change = grad[i] * c.unscale;
        mean[i] = c.mean_kept * mean[i] + c.mean_new * change;
        square[i] = c.square_kept * square[i] + c.square_new * (change * change);
        direction[i] = c.mean_scale * mean[i] / (c.root_scale * std::sqrt(square[i]) + c.eps) + c.decay * weight[i];
    }
}

FOR_EACH_PROCESSOR void move(float *__restrict weight, const float *__restrict direction, int64_t size, float rate) {
    for (int64_t i = 0; i < size; i++) {
        weight[i] -= rate * direction[i];
    }
}

// Call work(start, size) for the blocks of a tensor, the last first: after a pass over all of it, a cache has its end.
template <typename Work> void from_the_end(int64_t size, Work work) {
    for (int64_t i = (size - 1) / BLOCK * BLOCK; i >= 0; i -= BLOCK) {
        work(i, std::min(BLOCK, size - i));
    }
}

void lars_step(const Parameter &p, float unscale, const Lars &s) {
    double trust = 1;
    if (s.decay) {
        Sum weights, grads;
        for (int64_t i = 0; i < p.size; i += BLOCK) {
            int64_t size = std::min(BLOCK, p.size - i);
            add_squares(p.weight + i, size, weights.lanes);
            add_squares(p.grad + i, size, grads.lanes);
            weights.end_block();
            grads.end_block();
        }
        double weight = std::sqrt(weights.total), grad = std::sqrt(grads.total) * unscale;
        if (weight > 0 && grad > 0) {
            trust = s.trust * weight / (grad + s.decay * weight + s.eps);
        }
    }
    const float grad_rate = narrow(s.rate * trust * unscale), weight_rate = narrow(s.rate * trust * s.decay);
    from_the_end(p.size, [&](int64_t i, int64_t size) {
        lars(p.weight + i, p.grad + i, p.mean + i, size, grad_rate, weight_rate, narrow(s.momentum));
    });
}

void lamb_step(const Parameter &p, float unscale, const Lamb &s, float *direction) {
    const Coefficients coefficients(s, unscale, *p.count += 1);
    Sum weights, steps;
    for (int64_t i = 0; i < p.size; i += BLOCK) {
        int64_t size = std::min(BLOCK, p.size - i);
        directions(p.weight + i, p.grad + i, p.mean + i, p.square + i, size, coefficients, direction + i);
        add_squares(p.weight + i, size, weights.lanes);
        add_squares(direction + i, size, steps.lanes);
        weights.end_block();
        steps.end_block();
    }
    bool scaled = s.decay && weights.total > 0 && steps.total > 0;
    double trust = scaled ? std::sqrt(weights.total / steps.total) : 1;
    const float rate = narrow(s.rate * trust);
    from_the_end(p.size, [&](int64_t i, int64_t size) { move(p.weight + i, direction + i, size, rate); });
}

// Call work(parameter, thread) for every parameter, the last first: a network's largest are at its end.
template <typename Work> void for_each(const Parameter *parameters, int64_t count, int threads, Work work) {
    std::atomic<int64_t> left{count};
    auto run = [&](int thread) {
        for (int64_t i; (i = --left) >= 0;) {
            work(parameters[i], thread);
        }
    };
    std::vector<std::thread> others;
    try {
        for (int thread = 1; thread < threads; thread++) {
            others.emplace_back(run, thread);
        }
    } catch (const std::system_error &) {
        // the system allows no more threads: those already started share the work
    }
    run(0);
    for (std::thread &other : others) {
        other.join();
    }
}

}  // namespace

EXPORTED int64_t parameter_bytes() { return sizeof(Parameter); }

EXPORTED void step_sgd(const Parameter *parameters, int64_t count, int threads, const Scaler *scaler,
                       const Sgd *settings) {
    if (!scaler->skips()) {
        for_each(parameters, count, threads,
                 [&](const Parameter &p, int) { sgd(p, scaler->inverse(), *settings); });
    }
}

EXPORTED void step_lars(const Parameter *parameters, int64_t count, int threads, const Scaler *scaler,
                        const Lars *settings) {
    if (!scaler->skips()) {
        for_each(parameters, count, threads,
                 [&](const Parameter &p, int) { lars_step(p, scaler->inverse(), *settings); });
    }
}

// `scratch` has as many values for every thread as the largest parameter.
EXPORTED void step_lamb(const Parameter *parameters, int64_t count, int threads, const Scaler *scaler,
                        const Lamb *settings, float *scratch, int64_t largest) {
    if (!scaler->skips()) {
        for_each(parameters, count, threads, [&](const Parameter &p, int thread) {
            lamb_step(p, scaler->inverse(), *settings, scratch + thread * largest);
        });
    }
}
