"""The shipped taxonomy on short documents of each kind, written as people write them."""

import pytest

from workers.handlers.classify_document.scoring import score_text
from workers.handlers.classify_document.shelf import find_taxonomy

DOCUMENTS = {
    "invoice en": """Northwind Tools Ltd.   INVOICE   No. INV-20931
Bill to: Harbour Boats, Quay 4
Description  Qty  Unit price  Total
Stainless bolts  200  0.35  70.00
Subtotal 70.00   VAT 20% 14.00   Amount due 84.00   Due date 31 January
Please pay by bank transfer to the IBAN below.""",
    "invoice pt": """NOTA FISCAL ELETRÔNICA Nº 000.123.456
CNPJ do emitente 12.345.678/0001-90    Destinatário: Padaria São João Ltda
Produto  Quantidade  Valor unitário  Valor total
Farinha de trigo 25kg   4   98,00   392,00
ICMS 18%   Data de vencimento: 10/12/2026""",
    "receipt en": """RECEIPT No. 553
Received from Maria Lopes the sum of 120.00 EUR for the December yoga classes.
Amount paid: 120.00. Paid by card ending 4410. Thank you for your payment.""",
    "receipt pt": """RECIBO
Recebi de Carlos Alberto a importância de R$ 850,00 (oitocentos e cinquenta reais),
referente ao aluguel de novembro, da qual dou plena quitação.""",
    "purchase_order en": """PURCHASE ORDER   PO number 7741
Supplier: Norsk Timber AS   Ship to: Warehouse 2
Please supply the following goods. Delivery date 4 March. Quantity 30, unit price 12.90.""",
    "quotation pt": """ORÇAMENTO 88/2026
Pintura de fachada, materiais incluídos: R$ 14.200,00. Validade da proposta: 15 dias.""",
    "contract en": """SERVICES AGREEMENT
This Agreement is entered into on 3 May by and between Alpha GmbH and Beta Ltd (the "Parties").
1. Term and termination. 2. Confidentiality. 3. Governing law. The parties agree that each Party shall indemnify
the other. In witness whereof the parties hereto have signed.""",
    "contract pt": """CONTRATO DE PRESTAÇÃO DE SERVIÇOS
Pelo presente instrumento particular, de um lado a CONTRATANTE e de outro a CONTRATADA, têm entre si justo e acordado:
Cláusula primeira, do objeto. Cláusula segunda, da vigência. Cláusula terceira, da rescisão.
Foro da comarca de Recife.""",
    "refund_request en": """Subject: charged twice
Hello, I was charged twice for order 5512. Please process a refund for the second payment, I would like a refund
to the same card.""",
    "refund_request pt": """Bom dia, fui cobrado duas vezes pela mesma assinatura.
Solicito o reembolso do segundo pagamento, com a devolução do valor no meu cartão.""",
    "complaint en": """To the customer service manager,
I wish to make a formal complaint. The washing machine arrived damaged, the driver was rude and nobody called back.
This is unacceptable and I am extremely disappointed.""",
    "complaint pt": """Venho registar uma reclamação sobre o atendimento na loja do Porto.
O produto chegou danificado e fui mal atendido. Estou muito insatisfeita; é inaceitável.""",
    "support_request en": """Subject: locked out
Hi, I am unable to log in since this morning. I see the error message "token expired" and it stopped working on my
phone too. Could you help? It is urgent, please reset my password.""",
    "support_request pt": """Olá, não consigo acessar o sistema, aparece uma mensagem de erro depois da senha.
Preciso de ajuda, podem abrir um chamado? É urgente.""",
    "curriculum_vitae en": """Jane Carter, date of birth 4 April 1990
Professional summary. Work experience: Analyst, Fern Bank 2015-2021. Education: Bachelor of Science, University of
Leeds. Skills: SQL. Languages: English, Welsh.""",
    "curriculum_vitae pt": """CURRÍCULO
João Pereira. Estado civil: solteiro. Experiência profissional: assistente administrativo (2018-2024).
Formação acadêmica: bacharelado em Contabilidade, Universidade Federal. Idiomas: inglês.""",
    "report en": """Quarterly report, third quarter
Executive summary. Revenue grew 4 % year over year. Findings, conclusions and recommendations follow; table 2 shows
the key figures and our analysis of the results.""",
    "report pt": """Relatório mensal de atividades
Resumo executivo: os indicadores mostram crescimento da receita em comparação com o mês anterior.
Conclusões e recomendações na página 4.""",
    "meeting_minutes en": """Minutes of the meeting of 12 October
Attendees: A. Silva, B. Jones. Apologies for absence: C. Wu. Chaired by A. Silva.
The agenda was discussed. Action items: order paint. Next meeting 9 November. Meeting adjourned at 17:10.""",
    "meeting_minutes pt": """ATA DA REUNIÃO ORDINÁRIA DO CONDOMÍNIO
Presentes os condôminos da lista. Ordem do dia: pintura. Aprovado por unanimidade.
Nada mais havendo a tratar, foi lavrada a presente ata.""",
    "legal_notice en": """CEASE AND DESIST
Our client owns the mark HARBOUR. You are hereby notified to stop using it within ten days, failing which legal
proceedings will be started without further notice before the competent court.""",
    "legal_notice pt": """NOTIFICAÇÃO EXTRAJUDICIAL
Pela presente, fica notificado o senhor Paulo Reis para desocupar o imóvel em trinta dias,
sob pena de medidas judiciais.
Advogado: Dr. Nuno Faria.""",
    "tax_document en": """Notice of assessment, tax year 2025
Taxpayer identification 99-1234. Taxable income 41,200. Withholding 6,010. Issued by the tax authority.""",
    "tax_document pt": """RECEITA FEDERAL — Declaração de Imposto de Renda, ano-calendário 2025
Contribuinte: Ana Souza. Rendimentos tributáveis: 84.300,00. Imposto devido: 9.870,00.""",
    "bank_statement pt": """EXTRATO BANCÁRIO   Agência 0012  conta corrente 55123-4
Saldo anterior 1.200,00   10/11 débito 45,00   12/11 pix 300,00   Saldo final 1.455,00""",
    "payslip en": """PAYSLIP   Pay period: October   Employee: T. Brown
Gross pay 3,200.00   Overtime 120.00   Deductions 890.00   Net pay 2,430.00""",
    "software_description en": """quickparse
A small Python library for parsing logs. Installation: pip install quickparse. Usage: import quickparse.
Documentation and changelog on GitHub. Released under the MIT License.""",
    "invoice de": "Rechnung\nRechnungsnummer 4711, Rechnungsdatum 3.11.2026. Der Betrag ist mit der Ware fällig.",
    "legal_notice de": "Kuendigung\nHiermit kündigen wir das Mietverhältnis zum 31. März und weisen auf die Frist hin.",
    "refund_request fr": "Bonjour, je demande le remboursement de ma commande, elle n'est pas arrivée.",
    "invoice es": "FACTURA\nNúmero de factura 88. Fecha de factura 2 de mayo. Los gastos son por cuenta del cliente.",
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_is_recognised(name: str) -> None:
    category = name.partition(" ")[0]

    scores = score_text(find_taxonomy("default", None), DOCUMENTS[name])

    assert scores.category == category, scores.ranked[:2]


@pytest.mark.parametrize("name", [name for name in DOCUMENTS if name.endswith((" en", " pt"))])
def test_its_language_is_told(name: str) -> None:
    scores = score_text(find_taxonomy("default", None), DOCUMENTS[name])

    assert scores.language in {name.rpartition(" ")[2], "unknown"}


@pytest.mark.parametrize(
    "text",
    [
        "Dear team, lunch is at noon on Friday, bring a cake. See you there!",
        "Segue a lista de compras: arroz, feijão, tomate, sabão em pó.",
        "It was a bright cold day in April, and the clocks were striking thirteen.",
        "Lorem ipsum dolor sit amet, consectetur adipiscing elit.",
    ],
)
def test_a_text_of_no_known_kind_is_unknown(text: str) -> None:
    assert score_text(find_taxonomy("default", None), text).category == "unknown"
