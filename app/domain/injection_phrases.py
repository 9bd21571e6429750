"""The marks of text that is written to a model and not to a reader: phrases in several languages, roles, tool calls.

A phrase is groups of words in their order, written together since the text is searched without spaces: `a|b` is one of
them, `<a|b>` up to four of them or none. Both phrase and text are folded, so write them the natural way.
"""

import re
from dataclasses import dataclass

from app.domain.mark_folding import LETTERS


@dataclass(frozen=True, slots=True)
class Mark:
    """One mark: its kind, its weight, and what it looks like in a folded text."""

    kind: str
    weight: float
    pattern: re.Pattern[str]


_FILL = {
    "en": "all|any|of|the|these|those|your|my|our|every|everything|everyone|and|or|other|each|that|which|were|was|given|to|you|s",
    "pt": "todas|todos|as|os|a|o|das|dos|suas|seus|estas|esses|e|qualquer|quaisquer|que|foram|dadas",
    "es": "todas|todos|las|los|la|lo|el|tus|sus|estas|estos|y|cualquier|de|que|te|dieron",
    "fr": "toutes|tous|les|le|la|des|de|tes|vos|ces|et|l|d",
    "de": "alle|allen|die|der|das|den|deine|deiner|ihre|diese|dieser|bisherigen|und|zuvor|von|oben",
    "it": "tutte|tutti|le|gli|i|tue|vostre|queste|e|qualsiasi|delle",
    "ru": "все|эти|твои|свои|любые|всех|и",
    "nl": "alle|de|het|je|jouw|deze|en|uw",
    "pl": "wszystkie|wszelkie|te|swoje|twoje|i",
    "tr": "tum|bütün|bu|ve",
}
_OVERRIDES = {
    "en": (
        "ignore|disregard|forget|override|overlook|bypass|neglect|discard|skip <F>"
        " previous|prior|above|earlier|preceding|foregoing|former|existing|initial|original|system|developer|safety"
        " <F> instructions|instruction|prompts|prompt|rules|directions|directives|guidelines|commands|orders|messages|context|text",
        "ignore|disregard|forget|discard <F> instructions|rules|guidelines|directives <F>"
        " above|before|previously|sofar|untilnow|uptonow|earlier|received|have",
        "forget|disregard everything|anything|whatever|all <F> above|before|previously|sofar|toldbefore|youweretold|youknow",
        "donot|dont|never follow|obey|heed <F> previous|prior|above|earlier|system <F> instructions|prompt|rules|guidelines",
    ),
    "pt": (
        "ignore|ignora|ignorar|esqueca|esquece|esquecer|desconsidere|despreze <F> instrucoes|ordens|regras|orientacoes|comandos|mensagens|diretrizes"
        " <F> anteriores|acima|previas|prévias|iniciais|recebidas|dosistema",
        "esqueca|ignore|desconsidere tudo <F> acima|antes|anterior|disse|dito",
    ),
    "es": (
        "ignora|ignore|ignorar|olvida|olvide|olvidar|descarta|descarte|omite <F> instrucciones|ordenes|reglas|indicaciones|directrices|mensajes"
        " <F> anteriores|previas|arriba|iniciales|recibidas|delsistema",
        "olvida|ignora todo <F> anterior|arriba|antes|dicho",
    ),
    "fr": (
        "ignore|ignorez|ignorer|oublie|oubliez|oublier|neglige|negligez <F> instructions|consignes|ordres|regles|directives|messages"
        " <F> precedentes|precedents|anterieures|cidessus|initiales|dusysteme",
        "oublie|oubliez|ignorez tout <F> cequiprecede|precede|avant|dessus",
    ),
    "de": (
        "ignoriere|ignorieren|ignoriert|vergiss|vergessen|missachte|missachten|uebergehe <F>"
        " vorherigen|vorigen|bisherigen|obigen|vorangegangenen|vorhergehenden|fruheren|ursprunglichen"
        " <F> anweisungen|instruktionen|befehle|regeln|vorgaben|anordnungen|aufforderungen",
        "vergiss|ignoriere alles <F> bisherige|vorherige|vorher|oben|davor|zuvor",
    ),
    "it": (
        "ignora|ignorate|ignorare|dimentica|dimenticate|trascura <F> istruzioni|regole|indicazioni|direttive|ordini"
        " <F> precedenti|sopra|iniziali|ricevute|disistema",
    ),
    "nl": ("negeer|vergeet <F> vorige|voorgaande|eerdere|bovenstaande <F> instructies|aanwijzingen|opdrachten|regels",),
    "pl": (
        "zignoruj|ignoruj|zapomnij|pomin <F> poprzednie|powyzsze|wczesniejsze|dotychczasowe"
        " <F> instrukcje|polecenia|zasady|wytyczne",
    ),
    "tr": ("onceki|yukaridaki <F> talimatlari|komutlari|kurallari|yonergeleri <F> yoksay|gormezden|unut|dikkatealma",),
    "ru": (
        "игнорируй|игнорируйте|проигнорируй|забудь|забудьте|отбрось <F>"
        " предыдущие|прошлые|прежние|вышеуказанные|вышестоящие|предшествующие|системные"
        " <F> инструкции|указания|команды|правила|сообщения",
    ),
}
_WORDLESS = (
    "(?:忽略|无视|忘记|忘掉|不要理会|忽視|無視|忘記)(?:掉|你)?(?:所有|全部|一切|任何|之前|以上|先前|前面|上面|此前|上述|的)*"
    "(?:指令|指示|提示|命令|规则|要求|說明|说明|内容)",
    "(?:これまで|以前|上記|上|前|先|すべて|全て)(?:の|まで|に)*(?:すべて|全て)?(?:の)?(?:指示|命令|プロンプト|ルール|指令)"
    "(?:を|は)?(?:すべて|全て)?(?:無視|忘れ|破棄)",
    "(?:이전|위|앞|기존)(?:의|에)?(?:모든)?(?:지시|명령|지침|프롬프트|규칙)(?:사항)?(?:을|를|들을)?(?:모두)?(?:무시|잊)",
    "(?:تجاهل|انس)(?:جميع|كل)?(?:التعليمات|الأوامر|القواعد)(?:السابقة|أعلاه)",
    "(?:पिछले|पूर्व)(?:सभी)?(?:निर्देश|निर्देशों)(?:को)?(?:अनदेखा|भूल)",
)
_ORDERS = (
    (
        "persona",
        3.0,
        "youarenow|pretendtobe|pretendyouare|actas <a|an|the|in|as> dan|jailbroken|unrestricted|unfiltered|uncensored|developermode|godmode|evil|root|administrator|differentai|newai",
    ),
    ("persona", 3.0, "fromnowon <you> youwill|youare|youmust|act|respond|answer"),
    (
        "new_orders",
        3.0,
        "your|the new|real|actual|true <only|and> instructions|task|role|goal|objective|systemprompt <is|are> as|to|follow|is|are",
    ),
    (
        "exfiltration",
        4.0,
        "reveal|repeat|print|show|output|display|leak|tellme|giveme|disclose <F> systemprompt|hiddenprompt|initialprompt|initialinstructions|systemmessage|hiddeninstructions|secretkey|apikeys|environmentvariables",
    ),
    (
        "concealment",
        3.0,
        "donot|dont|never|without tell|inform|notify|mention|alert|telling|informing|mentioning <F|this|it|about|anyone|anybody|anything> user|human|operator|reader|them",
    ),
    (
        "exfiltration",
        4.0,
        "revela|revele|mostra|mostre|imprime|affiche|revelez|zeige|verrate|muestra|mostrami|rivela <F> promptdosistema|promptdelsistema|promptdesistema|systemprompt|promptsysteme|promptdisistema",
    ),
)
_SIGNS = (
    ("role_marker", 4.0, r"<\|[\s/]*(?:im_start|im_end|im_sep|system|user|assistant|endoftext|eot_id|start_header_id|end_header_id|begin_of_text|endofprompt|channel|message|python_tag)\b[^|<>]{0,40}\|?>"),
    ("role_marker", 4.0, r"\[\s*/?\s*(?:inst|system_prompt|available_tools|sys)\s*\]|<<\s*/?\s*sys\s*>>|</?start_of_turn>|</?end_of_turn>"),
    ("role_marker", 3.0, r"</?\s*(?:system|assistant|system[-_ ]?prompt|system[-_ ]?message|instructions?|human|developer)\s*/?>"),
    ("role_marker", 3.0, r"^[ \t]{0,8}#{1,6}[ \t]*(?:system|assistant|new instructions?|instructions? for the (?:ai|model|assistant))[ \t]*:?[ \t]*$"),
    ("role_marker", 2.0, r"^[ \t>*_]{0,8}(?:system|assistant|human|ai assistant|developer)[ \t*_]{0,4}:[ \t]"),
    ("role_marker", 3.0, r"\"role\"\s*:\s*\"(?:system|assistant|developer|tool)\""),
    ("role_marker", 3.0, r"(?:begin|end|start)[ _-]{1,3}(?:of[ _-])?(?:system|admin|developer)[ _-]{1,3}(?:prompt|message|instructions?|override)"),
    ("new_orders", 3.0, r"\b(?:attention|note|message|instructions?|notice|important)[ ,:]{1,3}(?:to|for)(?: the| any| all)? (?:ai|llm|language model|assistant|chatbot|ai assistant|model)s?\b"),
    ("new_orders", 3.0, r"\bif you are an? (?:ai|llm|language model|large language model|assistant|ai assistant)\b"),
    ("tool_call", 4.0, r"</?\s*(?:antml:)?(?:tool_calls?|function_calls?|invoke|tool_use|tool_response|tool_result|function_results?)\b[^<>]{0,80}>|<function[= ][^<>]{0,80}>"),
    ("tool_call", 4.0, r"\"(?:tool_calls|function_call|tool_use)\"\s*:"),
    ("tool_call", 3.0, r"\{\s*\"(?:name|tool|action|recipient_name|function)\"\s*:\s*\"[^\"\n]{1,64}\"\s*,\s*\"(?:arguments|parameters|action_input|input|args)\"\s*:"),
    ("tool_call", 3.0, r"^[ \t]{0,8}action\s*:\s*\w{1,64}\s*\n\s{0,8}action input\s*:"),
    ("data_mark", 4.0, r"</?\s*(?:data|document|untrusted)\b[^<>]{0,80}\bmark\s*=|</\s*data\s*>"),
)  # fmt: skip


def _group(words: str, *, language: str) -> str:
    filled = words[1:-1] if words.startswith("<") else words
    chosen = "|".join(_FILL[language] if word == "F" else word for word in filled.split("|"))
    folded = sorted({word.translate(LETTERS) for word in chosen.split("|")}, key=lambda word: (-len(word), word))
    joined = "|".join(re.escape(word) for word in folded if word)
    return f"(?:{joined}){{0,5}}" if words.startswith("<") else f"(?:{joined})"


def _phrase(phrase: str, language: str = "en") -> re.Pattern[str]:
    return re.compile("".join(_group(words, language=language) for words in phrase.split()))


def _folded_literals(pattern: str) -> str:
    """Fold the letters of a pattern that has no classes and no escapes."""
    return "".join(one.translate(LETTERS) if one.isalnum() else one for one in pattern)


PHRASES = (
    *(Mark("override", 5.0, _phrase(one, language)) for language, all_ in _OVERRIDES.items() for one in all_),
    *(Mark("override", 5.0, re.compile(_folded_literals(one))) for one in _WORDLESS),
    *(Mark(kind, weight, _phrase(one)) for kind, weight, one in _ORDERS),
)
"""Searched in the letters alone."""
SIGNS = tuple(Mark(kind, weight, re.compile(one, re.MULTILINE)) for kind, weight, one in _SIGNS)
"""Searched in the plain folded text, with its spacing."""
