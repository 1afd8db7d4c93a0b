import sys, statistics, torch, tempfile, time
from nanolm.model import NanoLM
from nanolm.spec import Spec
from nanolm.measure import alternate, ratio
import torch.nn.functional as functional
torch.set_num_threads(2)
MODELS={'20M':Spec(V=16384,D=384,L=6,N=6,K=2,H=64,F=1024,S=1024,tie_embeddings=False),'120M':Spec(V=32000,D=768,L=12,N=12,K=4,H=64,F=2048,S=1024)}
def peer(model):
    from transformers import AutoModelForCausalLM
    with tempfile.TemporaryDirectory() as f:
        model.save_pretrained(f)
        return AutoModelForCausalLM.from_pretrained(f,attn_implementation='sdpa',dtype=torch.float32)
def linears(model):
    return [m.weight for m in model.modules() if isinstance(m,torch.nn.Linear)]
which=sys.argv[1:]
for name,spec in MODELS.items():
    torch.manual_seed(0)
    m=NanoLM(spec); h=peer(m); ws=[w.detach() for w in linears(m)]
    print(name,m.num_parameters(), sum(w.numel() for w in ws))
    dev=torch.device('cpu')
    x=torch.randint(0,spec.V,(1,64))
    with torch.no_grad(): print('diff',(m(x)-h(x).logits).abs().max())
    def limit_forward(M,S,B,last=False):
        ins={w.shape[1]:torch.randn(M,w.shape[1]) for w in ws}
        q=torch.randn(B,spec.N,S,spec.H); k=torch.randn(B,spec.K,S,spec.H)
        def f():
            with torch.no_grad():
                for w in ws[:-1]: functional.linear(ins[w.shape[1]],w)
                functional.linear(ins[spec.D][:B] if last else ins[spec.D],ws[-1])
                for _ in range(spec.L): functional.scaled_dot_product_attention(q,k,k,is_causal=True,enable_gqa=True)
        return f
    if 'decode' in which or not which:
      for B in (1,8):
        P=128; N=16
        toks=torch.randint(0,spec.V,(B,P)); tok=toks[:,0].clone()
        cache=m.new_cache(B,P+N); m.prefill(toks,cache)
        def nano():
            cache.position=P
            for _ in range(N): m.decode(tok,cache)
        with torch.inference_mode(): past=h(toks,use_cache=True).past_key_values
        def hf():
            n=past.get_seq_length()-P
            if n: past.crop(-n)
            with torch.inference_mode():
                for _ in range(N): h(tok[:,None],past_key_values=past,use_cache=True,logits_to_keep=1)
        ins={w.shape[1]:torch.randn(B,w.shape[1]) for w in ws}
        q=torch.randn(B,spec.N,1,spec.H)
        def lim():
            with torch.inference_mode():
                for i in range(N):
                    for w in ws: functional.linear(ins[w.shape[1]],w)
                    for l in range(spec.L): functional.scaled_dot_product_attention(q,cache.keys[l][:,:,:P+i],cache.values[l][:,:,:P+i],enable_gqa=True)
        s=alternate({'nano':nano,'hf':hf,'lim':lim},dev,repeats=9 if name=='20M' else 5,warmup=1)
        print(name,'decode',B,{k:round(v.median*1e3/N,3) for k,v in s.items()},'hf/nano',round(ratio(s,'hf','nano'),3),'lim/nano',round(ratio(s,'lim','nano'),3),{k:round(v.spread,3) for k,v in s.items()},flush=True)
    if 'prefill' in which or not which:
        B,S=1,512
        toks=torch.randint(0,spec.V,(B,S))
        cache=m.new_cache(B,S)
        def nano(): cache.position=0; m.prefill(toks,cache)
        def hf():
            with torch.inference_mode(): h(toks,use_cache=True,logits_to_keep=1)
        lim=limit_forward(B*S,S,B,True)
        s=alternate({'nano':nano,'hf':hf,'lim':lim},dev,repeats=7,warmup=1)
        print(name,'prefill',{k:round(v.median*1e3,1) for k,v in s.items()},'hf/nano',round(ratio(s,'hf','nano'),3),'lim/nano',round(ratio(s,'lim','nano'),3),{k:round(v.spread,3) for k,v in s.items()},flush=True)
    if 'train' in which or not which:
        B,S=2,256
        toks=torch.randint(0,spec.V,(B,S)); tgt=torch.randint(0,spec.V,(B,S))
        on=torch.optim.AdamW(m.parameters(),fused=True); oh=torch.optim.AdamW(h.parameters(),fused=True)
        def nano(): m.loss(toks,tgt).backward(); on.step(); on.zero_grad()
        def hf():
            functional.cross_entropy(h(toks).logits.flatten(0,1),tgt.flatten()).backward(); oh.step(); oh.zero_grad()
        M=B*S
        ins={w.shape[1]:torch.randn(M,w.shape[1]) for w in ws}; outs={w.shape[0]:torch.randn(M,w.shape[0]) for w in ws}
        q=torch.randn(B,spec.N,S,spec.H,requires_grad=True); k=torch.randn(B,spec.K,S,spec.H,requires_grad=True);g=torch.randn(B,spec.N,S,spec.H)
        def lim():
            with torch.no_grad():
                for w in ws:
                    x,y=ins[w.shape[1]],outs[w.shape[0]]
                    functional.linear(x,w); y@w; y.t()@x
            for _ in range(spec.L): torch.autograd.grad(functional.scaled_dot_product_attention(q,k,k,is_causal=True,enable_gqa=True),(q,k),g)
        s=alternate({'nano':nano,'hf':hf,'lim':lim},dev,repeats=5,warmup=1)
        print(name,'train',{k:round(v.median*1e3,1) for k,v in s.items()},'hf/nano',round(ratio(s,'hf','nano'),3),'lim/nano',round(ratio(s,'lim','nano'),3),{k:round(v.spread,3) for k,v in s.items()},flush=True)
        m.zero_grad(); 
